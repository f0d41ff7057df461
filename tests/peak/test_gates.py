"""Where gated edits act, from score tables made by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from helpers.peak.gates import area_under_curve, gate_table, recognised_at
from helpers.results.archive import About, Run


def test_the_area_is_the_probability_of_being_nearer() -> None:
    assert area_under_curve(np.array([3.0, 1.0]), np.array([2.0, 0.0])) == 0.75
    assert area_under_curve(np.array([1.0]), np.array([1.0])) == 0.5
    assert np.isnan(area_under_curve(np.array([]), np.array([1.0])))


def test_the_fair_threshold_lets_in_what_is_nearer_than_most_others() -> None:
    others = np.arange(100.0)
    assert recognised_at(np.array([98.0, 50.0]), others) == 0.5


def test_a_table_counts_prompts_not_answers() -> None:
    rows = []
    for case_id, entries in {1: (0, 0, -1, -1), 2: (0, -1, 0, -1)}.items():
        prompts = [("edit", 0), ("paraphrase", 0), ("locality", 0), ("locality", 1)]
        for (role, prompt_index), entry in zip(prompts, entries, strict=True):
            for answer_index in range(3):
                rows.append((case_id, role, prompt_index, answer_index, entry, float(entry)))
    more = {"list": "target", "sum_before": 0.0, "sum_after": 0.0}
    columns = ["case_id", "role", "prompt_index", "answer_index", "entry", "nearness"]
    table = pd.DataFrame(rows, columns=columns).assign(**more)
    run = Run("a", About({}), {"GRACE": table, "ROME": table.drop(columns=["entry"])})
    shown = gate_table(run)
    assert shown.table.index.tolist() == ["GRACE"]
    row = shown.table.loc["GRACE"]
    assert row["records"] == "2"
    assert row["own prompt"].startswith("100")
    assert row["paraphrases"].startswith("50")
    assert row["locality prompts"].startswith("25")
    # Of two paraphrases (0, -1) and four others (-1, -1, 0, -1), ties as half: (3.5 + 1.5) / 8.
    assert float(row["AUC"]) == pytest.approx(5 / 8, abs=0.01)
