"""An edit from all sides: the numbers are those of the tables, the texts are the model's."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from helpers.editing.weight_edit import WeightEdit
from helpers.explorer.one_edit import MEASURES, Continuation, Outcome, with_target
from helpers.facts import Fact, record_of
from helpers.peak.metrics import metrics_table
from helpers.peak.run import edit_prompt_probabilities, edit_request, joined_scores


@pytest.fixture
def outcome(explorer, records):
    return explorer.explore(records[0], explorer.editor("ft-m"))


def test_probabilities_are_those_of_the_record_before_and_after(explorer, records, outcome):
    editor = explorer.editor("ft-m")
    (update,) = editor.edit([edit_request(records[0])])
    states = {"before": None, outcome.method: update}
    expected = edit_prompt_probabilities(explorer.lm, records[0], states)
    pd.testing.assert_frame_equal(outcome.probabilities(), expected, rtol=1e-4)
    assert not np.allclose(expected["before"], expected[outcome.method])


def test_measures_are_those_of_the_tables(explorer, records, outcome):
    (update,) = explorer.editor("ft-m").edit([edit_request(records[0])])
    table = metrics_table(joined_scores(explorer.lm, records[0], update))
    found = outcome.measures()
    assert tuple(found.index) == MEASURES
    assert len(outcome.before) == len(outcome.after) == 2
    np.testing.assert_allclose(found, 100 * table.iloc[0][list(MEASURES)], rtol=1e-4)


def test_naming_counts_continuations(records):
    before = (
        Continuation("a", (("Chad", "correct"),)),
        Continuation("b", (("Chad", "correct"), ("X", "hard"))),
    )
    after = (
        Continuation("c", (("Peru", "target"),)),
        Continuation("d", (("Peru", "target"), ("X", "hard"))),
    )
    outcome = Outcome(records[0], "FT", pd.DataFrame(), before, after, 1.0, WeightEdit({}))
    assert outcome.naming().to_numpy().tolist() == [
        ["Peru", "target", 0, 2],
        ["X", "hard", 1, 1],
        ["Chad", "correct", 2, 0],
    ]


def test_another_target_leaves_the_false_lists(records):
    record = records[0]
    chosen = with_target(record, f" {record.hard_false[0]} ")
    assert chosen.target_new == record.hard_false[0]
    assert chosen.hard_false == record.hard_false[1:]
    assert with_target(record, record.random_false[-1]).random_false == record.random_false[:-1]


@pytest.mark.parametrize(("target", "message"), [("  ", "name the answer"), (None, "already")])
def test_a_target_that_cannot_be_appended_is_refused(records, target, message):
    with pytest.raises(ValueError, match=message):
        with_target(records[0], records[0].correct[0] if target is None else target)


def test_a_fact_of_ones_own_is_a_record_with_its_paraphrases():
    fact = Fact(
        "Sudan",
        "{} borders",
        "Oman",
        ("Beside {} is",),
        (),
        ("Chad", "Washington, D.C."),
        ("Laos",),
    )
    record = record_of(fact)
    assert (record.prompt, record.target_new) == ("{} borders", "Oman")
    assert record.paraphrases == ("Beside Sudan is",)
    assert (record.correct, record.hard_false, record.random_false) == (
        ("Chad", "Washington, D.C."),
        ("Laos",),
        ("Laos",),
    )
    assert record_of(Fact("Sudan", "{} borders", "Oman")).correct == ()
