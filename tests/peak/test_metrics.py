"""PEAK metrics of a record: the worked case, both locality switches, the authors' code."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.peak.metrics import (
    METRICS,
    LocalityScores,
    PromptScores,
    RecordScores,
    record_metrics,
    record_probabilities,
)


def prompt(
    target: float, correct: list[float], hard: list[float], random: list[float]
) -> PromptScores:
    """Scores from mean negative log-likelihoods, as the worked case gives them."""
    return PromptScores(-target, *(-np.array(values, float) for values in (correct, hard, random)))


NOWHERE = LocalityScores(np.array([]), np.array([]), np.array([]))

# Worked case: pre-edit target scores are not used by any metric; 9 is a stand-in.
EDIT_BEFORE = prompt(
    9,
    [1, 1.5, 2, 4, 6],
    [2.5, 3, 5, 7, 1.2, 6.5, 6.6, 6.7, 3.3, 4.4],
    [5.5, 1.9, 6, 8],
)
EDIT_AFTER = prompt(
    0.7,
    [1.4, 1.3, 3.5, 3.8, 6.5],
    [2, 3.6, 2.2, 6, 1, 6.1, 3.4, 6.2, 3, 4],
    [5, 2.1, 3, 8.5],
)
PARAPHRASE_BEFORE = prompt(9, [1, 2], [2.5, 3], [3.5, 4])
PARAPHRASE_AFTER = prompt(2.3, [1.2, 2.2], [2, 3.1], [3, 4])
BEFORE = RecordScores(EDIT_BEFORE, (PARAPHRASE_BEFORE,), NOWHERE)
AFTER = RecordScores(EDIT_AFTER, (PARAPHRASE_AFTER,), NOWHERE)


@pytest.mark.parametrize("compat", [None, "authors"])
def test_worked_case(compat: str | None) -> None:
    metrics = record_metrics(BEFORE, AFTER, compat=compat)  # type: ignore[arg-type]
    percent = {name: round(100 * value, 2) for name, value in metrics.items()}
    assert percent["AFF_hard"] == 52.57
    assert percent["ANF_hard"] == 68.31
    assert percent["AFF_random"] == 32.98
    assert percent["ANF_random"] == 60.36
    assert percent["ES"] == 100
    assert percent["GS"] == 0
    assert np.isnan(metrics["LS"])


def test_generalisation_against_the_least_probable_kept_answer() -> None:
    better = replace(PARAPHRASE_AFTER, target=-2.1)
    after = replace(AFTER, paraphrases=(better,))
    metrics = record_metrics(BEFORE, after)
    assert metrics["GS"] == 1
    assert metrics["GM"] == pytest.approx(np.exp(-2.1) - np.exp(-2.2))


def test_a_record_without_paraphrases_has_no_generalisation() -> None:
    metrics = record_metrics(replace(BEFORE, paraphrases=()), replace(AFTER, paraphrases=()))
    assert np.isnan(metrics["GS"])
    assert metrics["ES"] == 1
    assert set(metrics) == set(METRICS)


SKIPPED = prompt(1, [5], [1, 1, 1, 1, 1], [6])


def test_only_the_skipped_prompt_is_left_out() -> None:
    before, after = (
        replace(record, paraphrases=(*record.paraphrases, SKIPPED)) for record in (BEFORE, AFTER)
    )
    ours = record_metrics(before, after)
    assert ours == pytest.approx(record_metrics(BEFORE, AFTER), nan_ok=True)
    authors = record_metrics(before, after, compat="authors")
    assert np.isnan(authors["AFF_hard"])
    assert np.isnan(authors["RNF_random"])
    assert authors["ES"] == 1
    assert authors["GS"] == 0
    first = [replace(record, edit=SKIPPED) for record in (BEFORE, AFTER)]
    assert record_metrics(*first, compat="authors")["AFF_hard"] == pytest.approx(
        record_metrics(*first)["AFF_hard"]
    )
    assert np.isnan(record_metrics(*first)["ES"])


def test_the_authors_collapse_equal_probabilities() -> None:
    before = RecordScores(prompt(9, [1, 1], [2, 2], [3, 3]), (), NOWHERE)
    after = RecordScores(prompt(0, [1, 5], [2, 0.5], [3, 3]), (), NOWHERE)
    # Ours sees the second correct answer fall and the second hard answer rise.
    assert record_metrics(before, after)["RFF_hard"] == 1
    # Theirs reads the first of each pair twice: 1 and 1 against 2 and 2.
    assert record_metrics(before, after, compat="authors")["RFF_hard"] == 0


def locality_case() -> tuple[RecordScores, RecordScores]:
    """Four locality prompts; the appended answer gains everywhere.

    Before, own answer above the target: yes, yes, no, yes; after: yes, no, yes, no.
    First answer above the target before: yes, no, yes, no; after: yes, no, no, no.
    """
    before = LocalityScores(
        answer=np.log([0.5, 0.4, 0.1, 0.3]),
        target=np.log([0.1, 0.2, 0.2, 0.2]),
        first=np.log([0.5, 0.1, 0.3, 0.1]),
    )
    after = LocalityScores(
        answer=np.log([0.5, 0.2, 0.6, 0.2]),
        target=np.log([0.3, 0.4, 0.4, 0.4]),
        first=np.log([0.5, 0.1, 0.3, 0.1]),
    )
    return replace(BEFORE, locality=before), replace(AFTER, locality=after)


@pytest.mark.parametrize(
    ("locality_filter", "locality_answer", "expected", "unfiltered", "magnitude"),
    [
        ("held_before", "own", 1 / 3, 1 / 2, (0.2 - 0.2 - 0.2) / 3),
        ("none", "own", 1 / 2, 1 / 2, (0.2 - 0.2 + 0.2 - 0.2) / 4),
        ("held_before", "first", 1 / 2, 1 / 4, (0.2 - 0.1) / 2),
        ("none", "first", 1 / 4, 1 / 4, (0.2 - 0.3 - 0.1 - 0.3) / 4),
    ],
)
def test_locality_switches(
    locality_filter: str, locality_answer: str, expected: float, unfiltered: float, magnitude: float
) -> None:
    metrics = record_metrics(
        *locality_case(),
        locality_filter=locality_filter,  # type: ignore[arg-type]
        locality_answer=locality_answer,  # type: ignore[arg-type]
    )
    assert metrics["LS"] == pytest.approx(expected)
    assert metrics["LS_unfiltered"] == pytest.approx(unfiltered)
    assert metrics["LM"] == pytest.approx(magnitude)


def test_a_tie_is_no_success() -> None:
    floor = float(EDIT_AFTER.correct[:3].min())  # of the kept ones
    tied = replace(AFTER, edit=replace(EDIT_AFTER, target=floor))
    assert record_metrics(BEFORE, tied)["ES"] == 0
    before, after = locality_case()
    same = replace(after.locality, answer=after.locality.target)
    assert record_metrics(before, replace(after, locality=same))["LS"] == 0
    same = replace(before.locality, answer=before.locality.target)
    metrics = record_metrics(replace(before, locality=same), after)
    assert np.isnan(metrics["LS"])  # no answer was above the target before
    assert metrics["LS_unfiltered"] == pytest.approx(1 / 2)


def test_the_authors_locality() -> None:
    assert record_metrics(*locality_case(), compat="authors")["LS"] == pytest.approx(1 / 2)


def test_the_first_answer_must_be_scored_to_be_used() -> None:
    before, after = locality_case()
    bare = [
        replace(record, locality=replace(record.locality, first=None)) for record in (before, after)
    ]
    assert record_metrics(*bare)["LS"] == pytest.approx(1 / 3)
    with pytest.raises(ValueError, match="first locality answer"):
        record_metrics(*bare, locality_answer="first")


def test_scores_that_do_not_belong_together() -> None:
    with pytest.raises(ValueError, match="different answers"):
        record_metrics(BEFORE, replace(AFTER, paraphrases=()))
    with pytest.raises(ValueError, match="different answers"):
        record_metrics(BEFORE, replace(AFTER, edit=PARAPHRASE_AFTER))
    with pytest.raises(ValueError, match="NaN"):
        record_metrics(BEFORE, replace(AFTER, edit=replace(EDIT_AFTER, target=float("nan"))))


def test_mean_probabilities() -> None:
    means = record_probabilities(
        RecordScores(PARAPHRASE_BEFORE, (), NOWHERE), RecordScores(PARAPHRASE_AFTER, (), NOWHERE)
    )
    assert means == pytest.approx(
        {
            "correct_before": (np.exp(-1) + np.exp(-2)) / 2,
            "hard_before": (np.exp(-2.5) + np.exp(-3)) / 2,
            "random_before": (np.exp(-3.5) + np.exp(-4)) / 2,
            "target_before": np.exp(-9),
            "correct_after": (np.exp(-1.2) + np.exp(-2.2)) / 2,
            "hard_after": (np.exp(-2) + np.exp(-3.1)) / 2,
            "random_after": (np.exp(-3) + np.exp(-4)) / 2,
            "target_after": np.exp(-2.3),
        }
    )


def test_mean_probabilities_leave_out_a_skipped_prompt() -> None:
    with_skipped = (
        replace(record, paraphrases=(*record.paraphrases, SKIPPED)) for record in (BEFORE, AFTER)
    )
    assert record_probabilities(*with_skipped) == pytest.approx(record_probabilities(BEFORE, AFTER))


costs = st.lists(st.floats(0, 30), min_size=6, max_size=6)


@st.composite
def records(draw: st.DrawFn) -> tuple[RecordScores, RecordScores]:
    """A record with one paraphrase and two locality prompts, before and after any edit."""

    def one() -> RecordScores:
        prompts = [
            prompt(draw(st.floats(0, 30)), draw(costs), draw(costs), draw(costs)) for _ in range(2)
        ]
        nearby = [-np.array(draw(st.lists(st.floats(0, 30), min_size=2, max_size=2)))] * 3
        return RecordScores(prompts[0], (prompts[1],), LocalityScores(*nearby))

    return one(), one()


@given(records(), st.sampled_from([None, "authors"]))
def test_bounds(pair: tuple[RecordScores, RecordScores], compat: str | None) -> None:
    metrics = record_metrics(*pair, compat=compat)  # type: ignore[arg-type]
    for name, value in metrics.items():
        if name.endswith("M"):
            assert np.isnan(value) or -1 <= value <= 1
        elif "PC" not in name:
            assert np.isnan(value) or 0 <= value <= 1


@given(records(), st.floats(0, 10))
def test_a_more_probable_target_never_lowers_success(
    pair: tuple[RecordScores, RecordScores], rise: float
) -> None:
    before, after = pair
    stronger = replace(after, edit=replace(after.edit, target=min(0.0, after.edit.target + rise)))
    low, high = (record_metrics(before, record)["ES"] for record in (after, stronger))
    assert np.isnan(low) or high >= low


@given(records())
def test_the_order_of_paraphrases_does_not_matter(pair: tuple[RecordScores, RecordScores]) -> None:
    two = [replace(record, paraphrases=(*record.paraphrases, record.edit)) for record in pair]
    reverse = [replace(record, paraphrases=record.paraphrases[::-1]) for record in two]
    assert record_metrics(*two) == pytest.approx(record_metrics(*reverse), nan_ok=True)
