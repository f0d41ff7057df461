"""From the long table of log-probabilities to metrics per record and means over records."""

import numpy as np
import pandas as pd
import pytest

from helpers.peak.metrics_table import (
    COLUMNS,
    iterate_records,
    metrics_table,
    probabilities_table,
    summarise,
)


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
    locality: dict = {
        "target": [(2, -5, -3)],
        "locality": [(1, -1, -2)],
        "first": [(1, -6, -6)],
    }
    rows = [
        *answers(1, "edit", 0, edit),
        *answers(1, "paraphrase", 0, edit | {"target": [(2, -5, -4)]}),
        *answers(1, "locality", 0, locality),
        *answers(1, "locality", 1, locality | {"locality": [(2, -1, -4)]}),
        *answers(2, "edit", 0, edit),
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def test_metrics_by_hand() -> None:
    metrics = metrics_table(table())
    assert metrics.index.tolist() == [1, 2]
    first, second = metrics.loc[1], metrics.loc[2]
    assert first["ES"] == second["ES"] == 1
    assert first["GS"] == 0
    assert first["LS"] == first["LS_unfiltered"] == 0.5
    assert second[["GS", "LS", "LS_unfiltered"]].isna().all()
    change = (np.exp(-2) + np.exp(-1.5)) / (np.exp(-1) + np.exp(-2))
    assert first["AFF_hard"] == pytest.approx(1 - change)
    assert first["FPC_hard"] == pytest.approx(np.exp(0.5))
    assert first["FPC_random"] == pytest.approx(1)


def test_normalise_sum_uses_whole_answers() -> None:
    metrics = metrics_table(table(), normalise="sum").loc[2]
    # Whole answers before: correct -1 and -8, hard -9, random -4; the random one is dropped,
    # which leaves no random list, so the prompt is skipped.
    assert metrics.isna().all()
    single = table().assign(tokens=1)
    pd.testing.assert_frame_equal(
        metrics_table(single, normalise="sum"), metrics_table(single, normalise="mean")
    )


def test_rows_may_come_in_any_order() -> None:
    shuffled = table().sample(frac=1, random_state=3)
    pd.testing.assert_frame_equal(metrics_table(shuffled), metrics_table(table()))


def test_the_authors_locality_needs_first_rows() -> None:
    assert metrics_table(table(), compat="authors")["LS"].isna().all()
    bare = table().query("list != 'first'")
    assert metrics_table(bare).loc[1, "LS"] == 0.5
    with pytest.raises(ValueError, match="first locality answer"):
        metrics_table(bare, compat="authors")


def test_records_without_locality_suit_the_authors_code() -> None:
    assert metrics_table(table().query("case_id == 2"), compat="authors").loc[2, "ES"] == 1


def test_scores_of_a_record() -> None:
    (case_id, before, after), _ = iterate_records(table())
    assert case_id == 1
    assert before.edit.correct.tolist() == [-1, -2]
    assert after.edit.target == -1
    assert after.locality.answer.tolist() == [-2, -4]


def test_mean_probabilities() -> None:
    means = probabilities_table(table())
    assert means.loc[2, "correct_before"] == pytest.approx((np.exp(-1) + np.exp(-2)) / 2)
    assert means.loc[1, "target_after"] == pytest.approx((np.exp(-1) + np.exp(-4)) / 2)


def test_summary_states_its_numbers() -> None:
    summary = summarise(metrics_table(table()))
    assert summary.loc["ES", "n"] == 2
    assert summary.loc["GS", "n"] == 1
    assert summary.loc["ES", "mean"] == 1
    # One record that gives 0: a share above 0.975 would show that in one case of forty at most.
    assert summary.loc["GS", ["low", "high"]].tolist() == pytest.approx([0, 0.975])
    assert np.isnan(summary.loc["GM", "low"])  # one number without bounds has no interval


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows.drop(columns="tokens"), "columns missing.*tokens"),
        (lambda rows: rows.replace({"list": {"hard": "harder"}}), "list 'harder' at role 'edit'"),
        (lambda rows: rows.replace({"role": {"edit": "prompt"}}), "at role 'prompt'"),
        (lambda rows: pd.concat([rows, rows.head(1)]), "twice"),
        (lambda rows: rows.assign(tokens=0), "without tokens"),
        (lambda rows: rows.assign(sum_after=np.nan), r"NaN.*case_id \[1, 2\]"),
        (lambda rows: rows.query("role != 'edit' or list != 'target'"), "case_id 1: edit prompt 0"),
    ],
)
def test_a_broken_table_is_refused(change, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        metrics_table(change(table()))


def test_a_method_whose_every_edit_was_given_up_has_columns_and_no_rows() -> None:
    nothing = table().iloc[:0]
    assert set(metrics_table(nothing)) == set(metrics_table(table()))
    assert set(probabilities_table(nothing)) == set(probabilities_table(table()))
    assert (summarise(metrics_table(nothing))["n"] == 0).all()
