"""PEAK's metrics: hand-computed cases, what must hold for any scores, tables and means."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import UserError
from helpers.peak.metrics import (
    COLUMNS,
    METRICS,
    AnswerFilter,
    Lists,
    RecordScores,
    additivity,
    keep_answers,
    metrics_table,
    probabilities_table,
    probability_change,
    ranking_forgetting_factor,
    ranking_noise_factor,
    record_metrics,
    record_probabilities,
    summarise,
)

NAMES = ("target", "correct", "hard", "random")


def prompt(*lists: tuple[list[float], list[float]]) -> Lists:
    """Scores from mean negative log-likelihoods before and after, in the order of ``NAMES``."""
    return {name: -np.array(pair, float) for name, pair in zip(NAMES, lists, strict=True)}


# Worked case: pre-edit target scores are not used by any metric; 9 is a stand-in.
EDIT = prompt(
    ([9], [0.7]),
    ([1, 1.5, 2, 4, 6], [1.4, 1.3, 3.5, 3.8, 6.5]),
    ([2.5, 3, 5, 7, 1.2, 6.5, 6.6, 6.7, 3.3, 4.4], [2, 3.6, 2.2, 6, 1, 6.1, 3.4, 6.2, 3, 4]),
    ([5.5, 1.9, 6, 8], [5, 2.1, 3, 8.5]),
)
PARAPHRASE = prompt(([9], [2.3]), ([1, 2], [1.2, 2.2]), ([2.5, 3], [2, 3.1]), ([3.5, 4], [3, 4]))
SKIPPED = prompt(([1], [1]), ([5], [5]), ([1] * 5, [1] * 5), ([6], [6]))
NOWHERE = {name: np.empty((2, 0)) for name in ("locality", "target", "first")}
RECORD = RecordScores(EDIT, (PARAPHRASE,), NOWHERE)


def with_target(lists: Lists, after: float) -> Lists:
    return {**lists, "target": np.array([[-9.0], [after]])}


def test_worked_case() -> None:
    metrics = record_metrics(RECORD)
    percent = {name: round(100 * value, 2) for name, value in metrics.items() if value == value}
    assert percent["AFF_hard"] == 52.57
    assert percent["ANF_hard"] == 68.31
    assert percent["AFF_random"] == 32.98
    assert percent["ANF_random"] == 60.36
    assert percent["ES"] == 100
    assert percent["GS"] == 0
    assert np.isnan(metrics["LS"])
    assert tuple(metrics) == tuple(METRICS)


def test_only_the_skipped_prompt_is_omitted() -> None:
    longer = replace(RECORD, paraphrases=(PARAPHRASE, SKIPPED))
    assert record_metrics(longer) == pytest.approx(record_metrics(RECORD), nan_ok=True)
    assert record_probabilities(longer) == pytest.approx(record_probabilities(RECORD))
    assert np.isnan(record_metrics(replace(RECORD, edit=SKIPPED))["ES"])


# Own answer above the target before: yes, yes, no, yes; after: yes, no, yes, no.
# First answer above the target before: yes, no, yes, no; after: yes, no, no, no.
LOCALITY = {
    "locality": np.log([[0.5, 0.4, 0.1, 0.3], [0.5, 0.2, 0.6, 0.2]]),
    "target": np.log([[0.1, 0.2, 0.2, 0.2], [0.3, 0.4, 0.4, 0.4]]),
    "first": np.log([[0.5, 0.1, 0.3, 0.1], [0.5, 0.1, 0.3, 0.1]]),
}


def test_locality_in_its_three_readings() -> None:
    metrics = record_metrics(replace(RECORD, locality=LOCALITY))
    found = [metrics[name] for name in ("LS", "LS_unfiltered", "LS_authors")]
    assert found == pytest.approx([1 / 3, 1 / 2, 1 / 2])


def test_a_tie_is_no_success() -> None:
    floor = float(EDIT["correct"][1, :3].min())  # of the kept ones
    assert record_metrics(replace(RECORD, edit=with_target(EDIT, floor)))["ES"] == 0
    tied = {**LOCALITY, "locality": LOCALITY["target"]}
    metrics = record_metrics(replace(RECORD, locality=tied))
    assert np.isnan(metrics["LS"])  # no answer was above the target before
    assert metrics["LS_unfiltered"] == 0


def test_filter_by_hand() -> None:
    correct, hard, random = [-1, -1.5, -2, -4], [-1.2, -3, -3, -5, -6], [-2, -2.1]
    # -1.5 and below have one hard answer of five above them: exactly the share of 0.2.
    kept = keep_answers(correct, hard, random)
    assert [list(kept.correct), list(kept.hard), list(kept.random)] == [
        [0],
        [0, 1, 2, 3, 4],
        [0, 1],
    ]
    # With a larger share -1.5 and -2 stay; the false answers at or above -2 go.
    kept = keep_answers(correct, hard, random, hard_share=0.3)
    assert [list(kept.correct), list(kept.hard), list(kept.random)] == [
        *([0, 1, 2], [1, 2, 3, 4], [1])
    ]


@pytest.mark.parametrize(
    ("correct", "hard", "random"),
    [([], [-1], [-1]), ([-1], [], [-2]), ([-1], [-2], []), ([-3], [-1], [-4]), ([-1], [-2], [-1])],
)
def test_a_prompt_with_an_empty_list_is_skipped(
    correct: list[float], hard: list[float], random: list[float]
) -> None:
    assert not all(map(len, keep_answers(correct, hard, random)))


def sigmoid(probability: float) -> float:
    return 1 / (1 + math.exp(-probability))


def test_factors_by_hand() -> None:
    correct, false = np.log([0.5, 0.2]), np.log([0.3, 0.1])
    assert ranking_forgetting_factor(correct, false) == pytest.approx(
        sigmoid(0.2) / (sigmoid(0.5) + sigmoid(0.2))
    )
    assert ranking_noise_factor(correct, false) == pytest.approx(
        sigmoid(0.3) / (sigmoid(0.3) + sigmoid(0.1))
    )
    assert probability_change(np.log([0.5, 0.3]), correct) == pytest.approx(0.7 / 0.8)
    assert probability_change([-900.0], [-901.0]) == pytest.approx(math.exp(-1))
    found = additivity(np.array([correct, correct - 1]), np.array([false, false + 1]))
    assert found["AFF"] == pytest.approx(1 - (1 - found["RFF"]) * math.exp(-1))
    assert found["ANF"] == pytest.approx(1 - (1 - found["RNF"]) / math.e)
    # Tiny probabilities are ranked, although their weights are equal.
    assert ranking_forgetting_factor([-50], [-45]) == ranking_noise_factor([-50], [-45]) == 1


scores = st.floats(min_value=-60, max_value=0)
lists = st.lists(scores, min_size=1, max_size=12)


@st.composite
def edits(draw: st.DrawFn) -> dict[str, Any]:
    """Scores of one prompt, of shape (2, n): before and after an edit."""
    sizes = {"correct": draw(st.integers(1, 8)), "false": draw(st.integers(1, 8))}
    drawn = {n: draw(st.lists(scores, min_size=2 * k, max_size=2 * k)) for n, k in sizes.items()}
    return {name: np.array(values).reshape(2, -1) for name, values in drawn.items()}


@given(edits(), st.floats(0, 10), st.randoms(use_true_random=False))
def test_what_holds_for_any_edit(edit: dict[str, Any], gain: float, random: Any) -> None:
    factors = additivity(**edit)
    assert all(0 <= factors[name] <= 1 for name in ("RFF", "RNF", "AFF", "ANF"))
    assert factors["AFF"] >= factors["RFF"] - 1e-12
    assert factors["ANF"] >= factors["RNF"] - 1e-12
    assert min(factors["CPC"], factors["FPC"]) > 0
    # More probability lost is more forgotten, more gained by false answers is more noise.
    richer = edit | {"correct": edit["correct"] + [[gain], [0]]}
    assert additivity(**richer)["AFF"] >= factors["AFF"] - 1e-12
    poorer = edit | {"false": edit["false"] - [[gain], [0]]}
    assert additivity(**poorer)["ANF"] >= factors["ANF"] - 1e-12
    order = {name: random.sample(range(k := values.shape[1]), k) for name, values in edit.items()}
    shuffled = {name: values[:, order[name]] for name, values in edit.items()}
    assert additivity(**shuffled) == pytest.approx(factors)


def answers(
    case_id: int, role: str, index: int, scores: dict[str, list[tuple[int, float, float]]]
) -> list[tuple]:
    """Rows of one prompt; a score is (tokens, mean before, mean after)."""
    return [
        (case_id, role, index, name, number, tokens, tokens * before, tokens * after)
        for name, values in scores.items()
        for number, (tokens, before, after) in enumerate(values)
    ]


def table() -> pd.DataFrame:
    """Two records; the second has no paraphrase and no locality prompt."""
    edit: dict = {
        "target": [(2, -5, -1)],
        "correct": [(1, -1, -2), (4, -2, -1.5)],
        "hard": [(3, -3, -2.5)],
        "random": [(1, -4, -4)],
    }
    locality: dict = {"target": [(2, -5, -3)], "locality": [(1, -1, -2)], "first": [(1, -6, -6)]}
    rows = [
        *answers(1, "edit", 0, edit),
        *answers(1, "paraphrase", 0, edit | {"target": [(2, -5, -4)]}),
        *answers(1, "locality", 0, locality),
        *answers(1, "locality", 1, locality | {"locality": [(2, -1, -4)]}),
        *answers(2, "edit", 0, edit),
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def test_a_table_by_hand() -> None:
    metrics = metrics_table(table().sample(frac=1, random_state=3))  # rows in any order
    assert metrics.index.tolist() == [1, 2]
    first, second = metrics.loc[1], metrics.loc[2]
    assert first["ES"] == second["ES"] == 1
    assert first["GS"] == 0
    assert first["LS"] == first["LS_unfiltered"] == 0.5
    assert second[["GS", "LS", "LS_unfiltered"]].isna().all()
    change = (np.exp(-2) + np.exp(-1.5)) / (np.exp(-1) + np.exp(-2))
    assert first["AFF_hard"] == pytest.approx(1 - change)
    assert first["FPC_hard"] == pytest.approx(np.exp(0.5))
    means = probabilities_table(table())
    assert means.loc[2, "correct_before"] == pytest.approx((np.exp(-1) + np.exp(-2)) / 2)


def test_summary_states_its_numbers() -> None:
    summary = summarise(metrics_table(table()))
    assert summary.loc[["ES", "GS"], "n"].tolist() == [2, 1]
    assert summary.loc["ES", "mean"] == 1
    # One record that gives 0: a share above 0.975 would show that in one case of forty at most.
    assert summary.loc["GS", ["low", "high"]].tolist() == pytest.approx([0, 0.975])
    nothing = table().iloc[:0]  # every edit was given up
    assert set(metrics_table(nothing)) == set(metrics_table(table()))
    assert (summarise(metrics_table(nothing))["n"] == 0).all()


def test_a_table_that_would_give_wrong_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match=r"NaN.*case_id \[1, 2\]"):
        metrics_table(table().assign(sum_after=np.nan))
    with pytest.raises(ValueError, match="twice"):
        metrics_table(pd.concat([table(), table().head(1)]))


def test_the_filter_is_the_rule_in_force_and_rank_by_default():
    correct, hard, random = (np.log([0.5, 0.2, 0.01]), np.log([0.3, 0.05]), np.log([0.1]))
    by_rank = [part.tolist() for part in AnswerFilter().keep(correct, hard, random)]
    assert by_rank == [[0], [0, 1], [0]]  # half of the hard answers are above 0.2
    assert by_rank == [part.tolist() for part in keep_answers(correct, hard, random)]
    wider = AnswerFilter(hard_share=0.6).keep(correct, hard, random)
    assert [part.tolist() for part in wider] == [[0, 1], [1], [0]]
    likely = AnswerFilter(rule="threshold", threshold=0.2).keep(correct, hard, random)
    assert [part.tolist() for part in likely] == [[0, 1], [1], [0]]
    every = AnswerFilter(rule="threshold", threshold=0).keep(correct, hard, random)
    assert [part.tolist() for part in every] == [[0, 1, 2], [], []]
    with pytest.raises(UserError, match="hard_share: must be from 0 to 1"):
        AnswerFilter(hard_share=2)


def test_tables_follow_the_filter():
    strict = AnswerFilter(rule="threshold", threshold=1)
    assert metrics_table(table(), strict)["AFF_hard"].isna().all()
    assert probabilities_table(table(), strict).isna().all(axis=None)
    pd.testing.assert_frame_equal(metrics_table(table(), AnswerFilter()), metrics_table(table()))
