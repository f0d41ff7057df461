"""An update at several scales: the scaled delta, one packed run, its key, and equal strength by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from helpers.behaviour.scorers import NAMED, SAMPLED
from helpers.costs import strength_run
from helpers.costs.strength import (
    DAMAGES,
    RESAMPLES,
    Matched,
    StrengthCurve,
    matched_pairs,
    matched_table,
    matching_position,
    strength_curves,
    value_at,
)
from helpers.costs.strength_run import Strengths
from helpers.editing.contexts import ContextTemplates
from helpers.editing.interventions import Dense, LowRank, Masked
from helpers.editing.rome import Rome
from helpers.editing.weight_edit import WeightEdit
from helpers.peak.records import load_peak
from helpers.peak.run import PeakRun, edit_request, score_records
from helpers.results.archive import NAMED_BY, Archive, TableKey
from helpers.results.publish import publish_parts
from helpers.results.store import ResultsStore

SCALES = (0.5, 1.0, 2.0)


@pytest.fixture
def strengths(tiny, tmp_path):
    data = load_peak("peak-mini-cf", limit=3)
    run = PeakRun(tiny("llama"), data, ResultsStore(tmp_path / "store"), chunk=2)
    return Strengths(run, SCALES, replace(SAMPLED, max_new_tokens=4))


@pytest.fixture
def editor(tiny, rome_settings):
    return Rome(tiny("llama"), rome_settings, ContextTemplates((("{}",),)))


def test_a_scaled_edit_is_the_scaled_delta():
    left, right, matrix, bias = (
        torch.randn(4, 2),
        torch.randn(3, 2),
        torch.randn(4, 3),
        torch.randn(4),
    )
    low_rank = LowRank(left, right)
    deltas = {
        "low rank": low_rank,
        "masked": Masked.from_mask(low_rank, torch.rand(4, 3) > 0.5),
        "dense": Dense(matrix, bias),
    }
    scaled = WeightEdit(deltas, {"steps": 3}).scaled(-0.5)
    assert scaled.diagnostics == {"steps": 3}
    for name, delta in deltas.items():
        torch.testing.assert_close(scaled[name].dense(), -0.5 * delta.dense())
        assert type(scaled[name]) is type(delta)
        inputs = torch.randn(5, 3)
        expected = -0.5 * delta.contribution(inputs)
        torch.testing.assert_close(scaled[name].contribution(inputs), expected)
    torch.testing.assert_close(scaled["dense"].bias, -0.5 * bias)
    assert WeightEdit({}, {"failure": "x"}).scaled(0.5).failed


def test_all_scales_are_of_one_optimisation_and_equal_scoring_alone(strengths, editor, monkeypatch):
    edits_made = []
    make_edits = Rome.edit
    monkeypatch.setattr(
        Rome,
        "edit",
        lambda self, requests: edits_made.append(len(requests)) or make_edits(self, requests),
    )
    tables = {scale: strengths.scores(editor, scale) for scale in SCALES}
    assert sum(edits_made) == len(strengths.run.data.records)
    for record in strengths.run.data.records:
        (edit,) = make_edits(editor, [edit_request(record)])
        for scale, table in tables.items():
            alone = score_records(strengths.run.lm, [record], [edit.scaled(scale)])["sum"]
            stored = table.loc[table["case_id"] == record.case_id, "sum_after"]
            assert stored.to_numpy() == pytest.approx(alone.to_numpy(), abs=2e-3)
    unedited = score_records(strengths.run.lm, strengths.run.data.records)["sum"]
    assert tables[0.5]["sum_before"].to_numpy() == pytest.approx(unedited.to_numpy(), abs=1e-3)
    assert list(strengths.named(editor, 1.0).columns) == NAMED
    assert set(strengths.named(None, 0.0)["case_id"]) == set(tables[0.5]["case_id"])


def test_the_key_has_the_scales_and_the_unedited_model_has_none(strengths, editor):
    others = (strengths, replace(strengths, scales=(0.5, 1.0)))
    folders = {each.states.evaluation(editor).results.folder for each in others}
    assert len({*folders, strengths.run.evaluation(editor).results.folder}) == 3
    assert len({each.states.evaluation().results.folder for each in others}) == 1


def test_the_position_at_which_a_curve_reaches_a_level():
    curves = np.array([[0.0, 0.2, 0.6, 0.5], [0.1, 0.1, 0.3, 0.4], [0.0, 0.1, 0.2, 0.3]])
    position = matching_position(curves, np.array([0.5, 0.1, 0.9]))
    assert position[:2] == pytest.approx([1.75, 0.0])  # the first time; at once
    assert np.isnan(position[2])  # never
    scales = np.array([[0.0, 0.25, 0.5, 1.0]])
    assert value_at(scales, np.array([1.75])) == pytest.approx([0.4375])
    assert value_at(scales, np.array([3.0])) == pytest.approx([1.0])
    assert np.isnan(value_at(scales, np.array([np.nan])))[0]


def index_of(records, relations):
    rows = [(record, f"P{record % relations}") for record in range(records)]
    return pd.MultiIndex.from_tuples(rows, names=["case_id", "relation"])


def curve(index, *, damage, scales=(0.0, 0.5, 1.0)):
    """Strength rises with the scale, and the damage is so many times the strength."""
    tables = {}
    noise = np.random.default_rng(1).normal(0, 0.02, len(index))
    for scale in scales:
        values = {"P": 0.4 * scale + noise, "named": scale * (np.arange(len(index)) % 2)}
        values |= dict.fromkeys(DAMAGES, damage * (0.4 * scale + noise))
        tables[scale] = pd.DataFrame(values, index=index)
    return StrengthCurve("rome", tables)


def test_at_equal_strength_a_weaker_edit_is_no_gain():
    index = index_of(40, 10)
    plain = curve(index, damage=2.0)
    weaker = curve(index, damage=2.0, scales=(0.6,)).by_scale[0.6]
    matched = Matched(plain, weaker, "rome+app", "P")
    assert matched.scale == pytest.approx(0.6)
    assert matched.damage("AFF_hard") == pytest.approx((0.48 + 2 * NOISE, 0.48 + 2 * NOISE))
    contrast = matched.contrast("AFF_hard")
    assert contrast.difference.mean == pytest.approx(0, abs=1e-9)
    better = Matched(plain, weaker.assign(AFF_hard=weaker["AFF_hard"] - 0.1), "rome+app", "P")
    contrast = better.contrast("AFF_hard")
    assert contrast.difference.mean == pytest.approx(0.1)
    assert contrast.difference.low == pytest.approx(0.1)  # the same records on both sides
    assert contrast.p_value == pytest.approx(2 / (RESAMPLES + 1))
    assert contrast.relation_count == 10


NOISE = float(np.random.default_rng(1).normal(0, 0.02, 40).mean())


def test_a_strength_that_the_update_never_has_gives_no_test():
    index = index_of(40, 10)
    stronger = curve(index, damage=2.0, scales=(3.0,)).by_scale[3.0]
    matched = Matched(curve(index, damage=2.0), stronger, "r-rome", "P")
    assert np.isnan(matched.scale)
    assert np.isnan(matched.contrast("AFF_hard").p_value)
    assert np.isnan(matched.contrast("AFF_hard").difference.mean)


def test_an_editor_is_matched_with_its_own_forms():
    index = index_of(12, 3)
    curves = {name: replace(curve(index, damage=2.0), method=name) for name in ("rome", "memit")}
    for name in ("rome+app", "memit+app", "r-rome", "mend"):
        curves[name] = replace(curve(index, damage=1.0, scales=(0.0, 1.0)), method=name)
    found = {(pair.curve.method, pair.other_method) for pair in matched_pairs(curves)}
    assert found == {
        ("rome", "rome+app"),
        ("rome", "r-rome"),
        ("rome", "mend"),
        ("memit", "memit+app"),
        ("memit", "mend"),
    }


def test_a_form_of_an_editor_without_scales_is_matched_and_one_without_records_is_not():
    index = index_of(12, 3)
    weak = replace(curve(index, damage=1.0, scales=(0.0, 1.0)), method="r-rome")
    elsewhere = index_of(24, 3)[12:]
    others = {
        "memit": replace(curve(index, damage=2.0), method="memit"),
        "r-rome": weak,
        "mend": replace(curve(elsewhere, damage=1.0, scales=(0.0, 1.0)), method="mend"),
    }
    assert {pair.other_method for pair in matched_pairs(others)} == {"r-rome"}


def test_it_is_published_and_shown(strengths, editor, tmp_path, monkeypatch):
    monkeypatch.setattr(strength_run, "studied_run", lambda _: strengths.run)
    monkeypatch.setattr(strength_run, "editors_of", lambda *_: {"rome": editor, "rome+app": editor})
    monkeypatch.setattr(strength_run, "SAMPLED", strengths.sampling)
    params = {"scales": list(SCALES), "scaled": ["rome"], "unscaled": ["rome+app"]}
    publication = strength_run.publication({**params, "seed": 0, "preset": "tuned"})
    archive = Archive(tmp_path / "archive")
    publish_parts(publication, archive)
    (run,) = archive.runs()
    assert TableKey("", "rome", "scale 0.5") in run.keys
    assert TableKey(NAMED_BY, "rome+app", "scale 1") in run.keys
    curves = strength_curves(run)
    assert curves["rome"].scales == [0.0, *SCALES]
    assert curves["rome+app"].scales == [0.0, 1.0]
    if len(curves["rome"].by_scale[1.0]):
        table = matched_table(run).table
        assert len(table) == 2 * len(DAMAGES)
