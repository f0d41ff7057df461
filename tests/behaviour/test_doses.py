"""Next-token distributions at locality prompts, and slopes by dose: by hand, in batches, of nothing."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch

from helpers.behaviour import doses_run
from helpers.behaviour.doses import DAMAGE, dose_table, first_dose
from helpers.behaviour.doses_run import distribution_shifts, locality_shifts
from helpers.editing.contexts import ContextTemplates
from helpers.editing.rome import Rome
from helpers.editing.weight_edit import WeightEdit
from helpers.peak.records import load_peak
from helpers.peak.run import PeakRun
from helpers.results.store import ResultsStore
from tests.scoring.random_edits import random_edits


def test_a_distribution_by_hand():
    before = torch.tensor([[0.5, 0.25, 0.1, 0.06, 0.05, 0.03, 0.01]])
    after = torch.tensor([[0.25, 0.5, 0.1, 0.06, 0.03, 0.05, 0.01]])
    kl = 0.25 * math.log(2) + 0.02 * math.log(5 / 3)
    found = distribution_shifts(before.log(), after.log()).loc[0]
    assert found["kl"] == pytest.approx(kl, rel=1e-6)
    assert found["top5"] == pytest.approx(4 / 5)


@pytest.fixture
def measured(tiny, rome_settings, tmp_path, monkeypatch):
    """The shifts of three records under the given updates, in chunks."""
    editor = Rome(tiny("llama"), rome_settings, ContextTemplates((("{}",),)))
    data = load_peak("peak-mini-cf", limit=3)

    def shifts(updates, chunk):
        by_record = {str(r.case_id): u for r, u in zip(data.records, updates, strict=True)}
        monkeypatch.setattr(Rome, "edit", lambda _, wanted: [by_record[w.record] for w in wanted])
        store = ResultsStore(tmp_path / f"{chunk}")
        return locality_shifts(PeakRun(tiny("llama"), data, store, chunk=chunk), editor)

    return shifts


def test_an_update_of_nothing_moves_nothing_and_is_stored(measured, monkeypatch):
    table = measured([WeightEdit({})] * 3, 2)
    prompts = table.pivot(index=["case_id", "prompt_index"], columns="asked", values="kl")
    assert prompts.columns.tolist() == ["alone", "stated"]
    assert prompts.notna().all(axis=None)
    np.testing.assert_allclose(table["kl"], 0, atol=1e-6)
    assert (table["top5"] == 1).all()
    monkeypatch.setattr(doses_run, "next_token_scores", None)  # anything computed again would fail
    pd.testing.assert_frame_equal(measured([WeightEdit({})] * 3, 2), table)


def test_batched_equals_one_by_one(measured, tiny):
    updates = random_edits(tiny("llama"))[:3]
    together, alone = measured(updates, 32), measured(updates, 1)
    pd.testing.assert_frame_equal(together, alone, atol=1e-5)
    assert (together["kl"] > 1e-4).all()


def test_slopes_and_first_doses_by_hand():
    """Half a unit a doubling, a little more in every record; one measure reacts from the third dose."""
    index = pd.MultiIndex.from_product(
        [["rome"], ["kl_factor"], [0.5, 1.0, 2.0, 4.0], range(20)],
        names=["method", "field", "dose", "case_id"],
    )
    steps = np.log2(index.get_level_values("dose").to_numpy(float)) + 1
    record = index.get_level_values("case_id").to_numpy()
    table = pd.DataFrame(dict.fromkeys(DAMAGE, steps * (0.5 + 0.01 * record)), index=index)
    table["LS"] = np.where(steps == 3, (record % 2) - 0.2, 0.0)
    table["top5_alone"] = np.where(steps >= 2, 0.5 + 0.01 * record, 0.0)
    found = dose_table(table.rename_axis(columns="measure").stack()).loc["rome", "kl_factor"]
    slope = found.loc["kl_alone"]
    assert (slope["mean"], slope["n"]) == (pytest.approx(0.5 + 0.01 * 9.5), 20)
    assert slope["low"] < slope["mean"] < slope["high"]
    assert found["first dose"].loc[["kl_alone", "top5_alone", "LS"]].tolist() == [1, 2, 4]
    assert math.isnan(first_dose("LS", table["LS"].unstack("dose") * 0))
