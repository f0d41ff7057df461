"""The README's figure: which record is typical, its answers, and how many of them are lost."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from helpers.peak import first_screen
from helpers.peak.first_screen import BEFORE, answers_of_record, lost_counts, typical_record
from helpers.results.archive import archive


@pytest.fixture(scope="module")
def run():
    return archive("ablations").get(first_screen.RUN)


def test_the_typical_record_is_nearest_to_the_means_of_those_that_succeed(monkeypatch):
    """Of four records the means of AFF are 0.5; the nearest was not written, so that the next is taken."""
    table = pd.DataFrame(
        {
            "ES": [1.0, 0.0, 1.0, 1.0],
            "AFF_hard": [0.1, 0.5, 0.6, 0.8],
            "ANF_hard": [0.5, 0.5, 0.5, 0.5],
        },
        index=pd.Index([7, 8, 9, 10], name="case_id"),
    )
    monkeypatch.setattr(
        first_screen, "scores_of", lambda *_, only: dict.fromkeys(only, pd.DataFrame())
    )
    monkeypatch.setattr(first_screen, "metrics_table", lambda _: table)
    assert first_screen.typical_case(None) == 9


def test_its_answers_are_those_that_count_by_list_and_probability(run):
    record = typical_record(run)
    answers = answers_of_record(run, record)
    assert answers["list"].unique().tolist() == ["target", "correct", "hard"]
    assert answers["answer"].iloc[0] == record.target_new
    for list_name, of_list in answers.groupby("list"):
        assert set(of_list["answer"]) <= set(record.lists[list_name])
        assert of_list[BEFORE].is_monotonic_decreasing
    at_edit_prompt = run.tables["rome"].query("role == 'edit' and case_id == @record.case_id")
    target = at_edit_prompt[at_edit_prompt["list"] == "target"].iloc[0]
    probability = np.exp(target["sum_after"] / target["tokens"])
    assert answers["after ROME"].iloc[0] == pytest.approx(probability, rel=1e-5)


def test_an_answer_is_lost_below_a_tenth_of_its_probability():
    answers = pd.DataFrame(
        {
            "list": ["target", "correct", "correct"],
            BEFORE: [0.5, 0.5, 0.5],
            "after ROME": [0.001, 0.049, 0.051],
            "after ROME with APP": [0.5, 0.5, 0.5],
        }
    )
    assert lost_counts(answers) == {"after ROME": 1, "after ROME with APP": 0}
