"""What edits leave of facts about other subjects, by how these are worded."""

import numpy as np
import pytest

from helpers.comparison.wording import (
    AS_EDIT,
    OTHER_WORDS,
    SAME_END,
    breadth,
    facts_by_wording_table,
    methods_alone,
    others_left,
    recalled_runs_of,
)
from helpers.results.statistics import fraction_interval
from helpers.results.text import with_interval
from helpers.thinkedit.knowgic import load_edited_graphs
from helpers.thinkedit.tables import terms_of_runs

MODEL = "smollm2-135m"


def test_every_known_fact_about_another_subject_counts_once():
    _, further = recalled_runs_of(MODEL)
    left = others_left(further, "memoir")
    assert {*left["words"]} == {AS_EDIT, SAME_END, OTHER_WORDS}
    terms = terms_of_runs((further,)).query("method == 'memoir' and measure == 'CKP'")
    assert len(left) == len(terms)
    assert left["left"].mean() == pytest.approx(np.minimum(terms["ratio"], 1.0).mean())
    prompts = {edit.prompt for edit in load_edited_graphs(further.about.source["layout"])}
    assert set(left.index) <= prompts


def test_the_table_has_intervals_over_wordings_and_the_number_of_facts():
    _, further = recalled_runs_of(MODEL)
    table = facts_by_wording_table(further).table.set_index("method")
    assert len(table) == len(methods_alone(further))
    left = others_left(further, "memoir")
    alike = left.loc[left["words"] == AS_EDIT, "left"]
    expected = f"{with_interval(fraction_interval(alike))} ({len(alike)}; {alike.index.nunique()})"
    assert table.loc["MEMOIR", AS_EDIT] == expected


def test_methods_are_plain_and_each_once():
    main, _ = recalled_runs_of(MODEL)
    methods = methods_alone(main)
    assert "memit" in methods
    assert not any("+" in method for method in methods)
    assert "prune" not in methods  # MEMIT's edit, where it is made alone


def test_the_figure_has_a_panel_for_each_model_with_further_editors():
    main, _ = recalled_runs_of(MODEL)
    fig = breadth([main])
    panel, _ = fig.axes
    assert panel.get_title() == MODEL
    assert "MEMOIR" in [label.get_text() for label in panel.get_yticklabels()]
    lose_own = (
        "Of 17 editors on smollm2-135m, in the mean, 8 lose most of the subject's other facts"
    )
    assert lose_own in fig.get_suptitle().replace("\n", " ")
