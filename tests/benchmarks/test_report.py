"""Costs and tables of the benchmarks; no timing is asserted."""

from __future__ import annotations

import pandas as pd
import pytest
import torch

from benchmarks import records
from benchmarks.machine import arithmetic, measured, peak_memory
from benchmarks.report import Report
from helpers import UserError
from helpers.peak.records import load_peak


def test_arithmetic_of_a_matrix_product():
    a, b = torch.randn(3, 5), torch.randn(5, 7)
    assert arithmetic(lambda: a @ b) == 2 * 3 * 5 * 7


def test_measuring_returns_the_result():
    cost, result = measured(lambda: sum(range(1000)))
    assert result == 499500
    assert cost.wall >= 0
    assert cost.busy >= 0


def test_a_report_is_kept_as_a_table_with_a_plot(tmp_path, capsys):
    report = Report("example", "record", torch.float32, "cpu")
    report.add("ours", 1, 2.0, plain=6.0, flop=4e9, wall=1.5)
    path = report.save(tmp_path, axis="edits")
    (row,) = pd.read_parquet(path).to_dict("records")
    assert row["ratio"] == 3
    assert row["GFLOP/s"] == 2
    assert row["of peak"] == pytest.approx(2e9 / report.peak)
    assert row["wall"] == 1.5
    assert path.with_suffix(".png").exists()
    assert "peak memory" in capsys.readouterr().out
    assert peak_memory() > 0


def test_reports_of_other_models_and_types_stand_beside_each_other(tmp_path):
    paths = set()
    for dtype in (torch.float32, torch.float64):
        for label in ("one_rome", "shape:two_rome"):
            report = Report("editing", "record", dtype, "cpu", label)
            report.add("ours", 1, 2.0)
            paths.add(report.save(tmp_path, axis="edits"))
    assert len(paths) == 4
    assert all(path.exists() for path in paths)


def test_packaged_records_stand_in_where_nothing_can_be_fetched(monkeypatch, capsys):
    def nothing(name, **_):
        if name == "peak-cf":
            raise UserError("no network")
        return load_peak(name)

    monkeypatch.setattr(records, "load_peak", nothing)
    assert records.records_at_hand("peak-cf") == list(load_peak("peak-mini-cf").records)
    assert "takes the place of peak-cf: no network" in capsys.readouterr().err
