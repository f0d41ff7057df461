"""Unshown answers at equal strength: the records, the halves, and a weaker edit that is no gain."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from helpers.costs.strength import scale_state
from helpers.costs.unshown_strength import unshown_matches, unshown_strength_table
from helpers.peak.metrics import KEYS
from helpers.results.archive import About, Run, TableKey

SCALES = (0.5, 1.0)
RECORDS = 16


def scores(fall: float, *, halves: bool, protected: str = "") -> pd.DataFrame:
    """Six correct and six hard false answers a record; correct ones fall by so many nats, and o* rises.

    The answers of the ``protected`` half fall by nothing.
    """
    rows = []
    for case_id in range(RECORDS):
        answers = [("target", 0, "not split", -6.0, fall), ("random", 0, "not split", -9.0, 0.0)]
        for index, half in enumerate(("shown", "unshown") * 3):
            loss = 0.0 if half == protected else fall + 0.01 * case_id
            answers.append(("correct", index, half, -1.0, -loss))
            answers.append(("hard", index, half, -2.0, 0.0))
        for name, index, half, before, change in answers:
            row = dict(zip(KEYS, (case_id, "edit", 0, name, index), strict=True))
            row |= {"tokens": 1, "sum_before": before, "sum_after": before + change}
            rows.append(row | ({"half": half} if halves else {}))
    return pd.DataFrame(rows)


def run_of(tables: dict[str, pd.DataFrame], relations: int = 8) -> Run:
    caption = {"relations": {str(case_id): f"P{case_id % relations}" for case_id in range(RECORDS)}}
    return Run("tiny_peak-cf", About({}, {}, caption), tables)


@pytest.fixture
def matched():
    names = {scale: str(TableKey("", "rome", scale_state(scale))) for scale in SCALES}
    return run_of({name: scores(4.0 * scale, halves=False) for scale, name in names.items()})


def held_out(protected: str) -> Run:
    with_app = scores(2.0, halves=True, protected=protected)
    return run_of({"rome": scores(4.0, halves=True), "rome+app, half": with_app})


def test_an_edit_as_strong_as_the_scaled_one_that_forgets_as_much_is_no_gain(matched):
    match = unshown_matches(held_out(""), matched)["rome", "AFF"]
    assert match.scale == pytest.approx(0.5)
    assert match.contrast("AFF").difference.mean == pytest.approx(0)


def test_only_the_unshown_half_counts(matched):
    of_shown = unshown_matches(held_out("shown"), matched)["rome", "AFF"]
    of_unshown = unshown_matches(held_out("unshown"), matched)["rome", "AFF"]
    assert of_shown.contrast("AFF").difference.mean == pytest.approx(0)
    scaled, protected = of_unshown.damage("AFF")
    assert scaled > 0.2
    assert protected == 0
    assert of_unshown.contrast("AFF").difference.mean == pytest.approx(scaled)


def test_rows_are_of_the_editors_that_both_studies_have(matched):
    run = held_out("unshown")
    run.tables.update({"ft-m": run.tables["rome"], "ft-m+app, half": run.tables["rome+app, half"]})
    table = unshown_strength_table(run, matched).table
    assert table.index.tolist() == [("ROME", "AFF"), ("ROME", "ANF")]
    assert (table["Holm"] != "").all()


def test_a_record_without_a_half_is_in_no_mean(matched):
    run = held_out("")
    for name, table in run.tables.items():
        alone = (table["case_id"] == 3) & (table["list"] == "correct")
        run.tables[name] = table.assign(half=np.where(alone, "not split", table["half"]))
    matches = unshown_matches(run, matched)
    assert len(matches["rome", "AFF"].other) == RECORDS - 1
    assert len(matches["rome", "ANF"].other) == RECORDS
