"""The filter on given probabilities, checked by hand on the worked case of the metrics."""

import numpy as np
import pandas as pd
import pytest

from helpers import UserError
from helpers.peak.construction.build import FilterSettings, apply_filter
from helpers.peak.metrics import keep_answers
from helpers.peak.records import PeakRecord

# Mean-token NLLs of an edit prompt with what the authors' rule keeps: O 0–2, O_h all but 4, O_r 0 2 3.
CORRECT, HARD = [1, 1.5, 2, 4, 6], [2.5, 3, 5, 7, 1.2, 6.5, 6.6, 6.7, 3.3, 4.4]
RANDOM = [5.5, 1.9, 6, 8]


def record(case_id: int = 7) -> PeakRecord:
    return PeakRecord(
        case_id, "P47", "Next to {} lies", "X", "new", "o0",
        tuple(f"o{i}" for i in range(5)), tuple(f"h{i}" for i in range(10)),
        tuple(f"r{i}" for i in range(4)), ("Near X lies",), (("Near Y lies", "o0"), ("By Z is", "o4")),
    )  # fmt: skip


def scores(*lists: list[float]) -> pd.DataFrame:
    """Scores of one question per group of three lists of NLLs."""
    rows = []
    for question in range(len(lists) // 3):
        values = [-v for part in lists[3 * question : 3 * question + 3] for v in part]
        rows += [(question, answer, mean) for answer, mean in enumerate(values)]
    return pd.DataFrame(rows, columns=["question", "answer", "mean"])


def kept(lists, threshold: float | None = None) -> list[list[int]]:
    return [list(part) for part in keep_answers(*lists, threshold=threshold)]


WORKED = [np.exp(-np.array(part)) for part in (CORRECT, HARD, RANDOM)]


def test_both_rules_on_the_worked_case():
    authors = [[0, 1, 2], [0, 1, 2, 3, 5, 6, 7, 8, 9], [0, 2, 3]]
    assert kept(WORKED) == authors
    correct, hard, _ = kept(WORKED, np.exp(-4))
    assert correct == [0, 1, 2, 3]
    assert hard == [2, 3, 5, 6, 7, 9]  # less probable than exp(-4)
    with pytest.raises(UserError, match="rule: 'best' is none of"):
        FilterSettings(rule="best")


@pytest.mark.parametrize("threshold", [None, 1e-3])
def test_a_false_answer_as_probable_as_a_known_one_is_dropped(threshold):
    lists = [0.5, 0.25], [0.25, 0.1], [0.2, 0.25]
    assert kept(lists, threshold) == [[0, 1], [1], [0]]


def test_complete_lists_stay_and_records_are_numbered_anew():
    for rule, known in (("rank", 3), ("threshold", 4)):
        settings = FilterSettings(rule=rule, threshold=np.exp(-4))
        filtered = apply_filter([record(case_id=7)], scores(CORRECT, HARD, RANDOM), settings)
        assert filtered.records == (record(case_id=0),)
        assert list(filtered.table["correct_kept"]) == [known]


def test_records_fail_at_the_step_that_says_why():
    unknown = scores([9] * 5, HARD, RANDOM)
    no_random = scores([1, 1, 1, 1, 9], [8] * 10, [0.5] * 4)
    filtered = apply_filter([record()], unknown, FilterSettings())
    assert filtered.records == ()
    assert list(filtered.table["step"]) == ["model knows correct answers"]
    assert filtered.funnel()[0] == ("model knows correct answers", 0)
    (step,) = apply_filter([record()], no_random, FilterSettings()).table["step"]
    assert step == "random false answers left"
