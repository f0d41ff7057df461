"""Notebook 03 shows any number of published runs: its code for them, executed without a model."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest

from helpers import UserError
from helpers.execute import PUBLISHED, tags
from helpers.paths import NOTEBOOKS
from helpers.peak import tables
from helpers.peak.metrics import AnswerFilter
from helpers.results.archive import About, Archive, archive
from helpers.results.figure import drawing

SMALL = "smollm2-135m_peak-cf"
RANK = AnswerFilter()


def shown_of(published: list[str], answer_filter: AnswerFilter = RANK) -> list[tuple[str, Any]]:
    """What the notebook's cells of published runs show, as title (or figure's name) and content."""
    cells = json.loads((NOTEBOOKS / "03_editing_runs.ipynb").read_text("utf-8"))["cells"]
    shown: list[tuple[str, Any]] = []

    def show(what: Any, *values: Any, title: str = "", **options: Any) -> None:
        if isinstance(what, str):
            options.pop("name", None)
            shown.append((what, drawing(what).draw(*values, **options)))
        else:
            shown.append((title, what))

    names = {"published": published, "answer_filter": answer_filter, "show": show, "pd": pd}
    for cell in cells:
        if cell["cell_type"] == "code" and PUBLISHED in tags(cell):
            exec("".join(cell["source"]), names)
    return shown


@pytest.mark.slow
def test_one_run_on_peak_cf_alone_is_shown_whole():
    shown = shown_of([SMALL])
    titles = [title for title, _ in shown]
    assert titles[0].startswith("ours: smollm2-135m")
    assert "answers kept by rank (below 0.2 of the hard false answers)" in titles[0]
    assert not [title for title in titles if "peak-t" in title or "gemma" in title]
    assert {"03_lists", "03_verdicts"} <= set(titles)
    main = shown[0][1]
    assert main.table.index[0] == "unedited"
    assert "MEND: undertrained (500 steps)" in main.note
    assert "KN: steps 1, adaptive_threshold 0.2, p 0.4" in main.note


@pytest.mark.slow
def test_other_models_follow_the_first_one_under_the_filter_asked_for():
    by_threshold = AnswerFilter(rule="threshold", threshold=0.01)
    shown = shown_of(["qwen2.5-coder-1.5b_peak-t", "gemma3-270m_peak-cf"], by_threshold)
    captions = [title for title, _ in shown if title.startswith("ours: ")]
    models_in_order = dict.fromkeys(caption.split()[1] for caption in captions)
    assert list(models_in_order) == ["qwen2.5-coder-1.5b", "gemma3-270m"]
    assert all("answers kept by threshold (P at least 0.01)" in caption for caption in captions)


@pytest.fixture
def five(tmp_path, monkeypatch):
    mine = Archive(tmp_path)
    rows = pd.DataFrame({"case_id": [1]})
    for name in ("a", "b", "c", "d", "e"):
        about = About({"model": name, "dataset": "peak-cf"})
        mine.put(f"{name}_peak-cf", {"ROME": rows}, about)
    mine.put("a_peak-t", {"ROME": rows}, About({"model": "a", "dataset": "peak-t"}))
    mine.put("again", {"ROME": rows}, About({"model": "a", "dataset": "peak-cf"}))
    monkeypatch.setattr(tables, "archive", lambda _: mine)


def test_published_names_models_or_runs(five):
    names = [run.name for run in tables.published_runs(["b", "a", "c", "d", "e_peak-cf"])]
    assert names == ["b_peak-cf", "a_peak-cf", "a_peak-t", "c_peak-cf", "d_peak-cf", "e_peak-cf"]
    assert [run.name for run in tables.published_runs(["a_peak-t"])] == ["a_peak-t"]
    assert [run.name for run in tables.published_runs(["a", "a_peak-cf"])] == names[1:3]
    with pytest.raises(UserError, match="a_peak-cf and again are both of a on peak-cf"):
        tables.published_runs(["a", "again"])
    with pytest.raises(UserError, match="no run 'f'"):
        tables.published_runs(["f"])


def test_a_run_is_weighted_by_the_relations_of_the_whole_file():
    index = pd.MultiIndex.from_tuples(
        [(1, "P1"), (2, "P1"), (3, "P1"), (4, "P2")], names=["case_id", "relation"]
    )
    by_record = {"ROME": pd.DataFrame({"AFF_hard": [1.0, 1.0, 0.4, 0.2]}, index=index)}
    relations = pd.DataFrame({"relation": ["P1", "P2", "P3"], "records_whole": [20, 40, 40]})
    shown = tables.weighted_table(by_record, relations, metrics=["AFF_hard"])
    # (0.2 * 0.8 + 0.4 * 0.2) / 0.6 = 0.4, the mean over records is 0.65
    assert shown.table.loc["ROME", "AFF_hard"] == "40.0 (-25.0)"
    assert "the measured relations have 60 % of them" in shown.note


def test_the_papers_daggers_are_shown_where_its_numbers_are():
    metrics = archive("peak").get(SMALL)
    by_record = tables.metrics_table(tables.scores_of(metrics, only=["ROME"])["ROME"])
    paper = tables.paper_setting("gpt2-xl", "peak-cf")
    (label,) = paper
    shown = tables.beside_paper({"ROME+APP": by_record}, paper, metrics=["ES", "AFF_hard"])
    row = shown.table.loc[("ROME+APP", label)]
    assert (row["ES"], row["AFF_hard"]) == ("96.2", "40.5†")
    assert shown.note.startswith("† of the paper: with APP differs from without")
    plain = tables.beside_paper({"ROME": by_record}, paper, metrics=["ES"])
    assert plain.note == ""
