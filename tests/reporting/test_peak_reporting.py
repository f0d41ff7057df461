"""Tables, stored runs and figures of PEAK results made up by hand."""

from __future__ import annotations

import json

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from helpers.data.peak import load_peak
from helpers.metrics.peak_tables import COLUMNS, metrics_table
from helpers.reporting import gallery, stored
from helpers.reporting.peak_figures import grouped_points
from helpers.reporting.peak_tables import (
    Caption,
    beside_paper,
    by_relation,
    editing_table,
    method_metrics,
    paper_setting,
    ranking_in_words,
    worst_record,
)
from helpers.reporting.stored import StoredRun, load_run, store_run
from helpers.reporting.style import save_figure
from helpers.runs.peak_scores import questions

mpl.use("Agg")
CAPTION = Caption("m", "peak-mini-cf", 6, "tuned", "float32", "cpu")
NOTHING = pd.DataFrame(columns=COLUMNS)  # every edit was given up


def scores(data, seed: int, harm: float) -> pd.DataFrame:
    """Random scores: correct answers first, sinking by ``harm`` on average."""
    generator = np.random.default_rng(seed)
    level = {"correct": -1.0, "locality": -1.0, "first": -1.0, "target": -4.0, "hard": -6.0}
    tables = []
    for record in data.records:
        keys = questions(record)[1]
        before = keys["list"].map(level).fillna(-9.0) + 0.1 * generator.standard_normal(len(keys))
        drop = np.where(keys["list"] == "correct", harm * generator.uniform(0.5, 1.5, len(keys)), 0)
        after = before - drop + np.where(keys["list"] == "target", 3.5, 0)
        tables.append(keys.assign(tokens=1, sum_before=before, sum_after=after))
    return pd.concat(tables, ignore_index=True)


@pytest.fixture(scope="module")
def data():
    return load_peak("peak-mini-cf", limit=6)


@pytest.fixture(scope="module")
def both(data):
    return {"ROME": scores(data, 0, 5.0), "ROME+APP": scores(data, 0, 0.5)}


def test_editing_table_marks_significant_improvement_only(both):
    table = editing_table(method_metrics(both))
    assert table.loc["ROME+APP", "AFF_hard"].endswith("†")
    assert "†" not in "".join(table.loc["ROME"])
    mean = 100 * metrics_table(both["ROME"])["AFF_hard"].mean()
    assert table.loc["ROME", "AFF_hard"].startswith(f"{mean:.1f} ±")


def test_beside_paper_labels_every_row(both):
    table = beside_paper(
        method_metrics(both), table="peak_table_3", model="gpt2-xl", dataset="peak-cf"
    )
    assert set(table.index.get_level_values("source")) == {"ours", "paper (gpt2-xl)"}
    assert table.loc[("ROME", "paper (gpt2-xl)"), "ES"] == "99.3"


def test_by_relation_counts_records(both, data):
    table = by_relation(method_metrics(both), data, metric="AFF_hard")
    assert table["records"].sum() == len(data.records)
    assert set(table.index) == {record.relation for record in data.records}


def test_worst_record_in_words(both, data):
    metrics = method_metrics(both)["ROME"]
    worst = worst_record(metrics, "AFF_hard", data)
    assert metrics.loc[worst.case_id, "AFF_hard"] == metrics["AFF_hard"].max()
    before = ranking_in_words(both["ROME"], worst, "sum_before", first=3)
    assert before.count("*") == 3
    after = ranking_in_words(both["ROME"], worst, "sum_after", first=1)
    assert after == f"[{worst.target_new}]"


def test_stored_runs_hold_scores_only_and_read_back(tmp_path, both):
    store_run("m_peak", StoredRun(CAPTION, both, {"ROME": {"v_lr": 0.5}}), tmp_path)
    again = load_run("m_peak", tmp_path)
    assert again.caption == CAPTION
    assert list(again.scores) == ["ROME", "ROME+APP"]
    pd.testing.assert_frame_equal(
        again.scores["ROME"], both["ROME"], check_dtype=False, rtol=1e-6, atol=1e-6
    )
    assert "answer" not in again.scores["ROME"]
    assert json.loads((tmp_path / "m_peak" / "about.json").read_text())["settings"]
    with pytest.raises(KeyError, match="m_peak"):
        load_run("none", tmp_path)


def test_gallery_draws_every_figure_and_bytes_are_stable(tmp_path, both, monkeypatch):
    store_run("m_peak", StoredRun(CAPTION, both, {}), tmp_path / "data")
    monkeypatch.setattr(gallery, "stored_runs", lambda: stored.stored_runs(tmp_path / "data"))
    monkeypatch.setattr(gallery, "load_run", lambda name: load_run(name, tmp_path / "data"))
    names = [name for name in gallery.figures() if name.endswith("m_peak")]
    assert [name.split("_")[1] for name in names] == ["additivity", "lists", "spread"]
    for name in names:
        first = [path.read_bytes() for path in gallery.draw(name, tmp_path / "one")]
        again = [path.read_bytes() for path in gallery.draw(name, tmp_path / "two")]
        assert first == again
        assert len(first) == 2


def test_save_figure_writes_png_and_svg(tmp_path):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots()
    axes.plot([0, 1])
    assert [path.suffix for path in save_figure(figure, "x", tmp_path)] == [".png", ".svg"]


def test_an_interval_that_reaches_zero_has_no_cap_there():
    table = pd.DataFrame(
        {
            "state": ["before", "after"],
            "list": "correct",
            "mean": 0.1,
            "low": [0.05, -0.1],
            "high": 0.2,
        }
    )
    figure, axes = plt.subplots()
    grouped_points(axes, table, group="state", point="list")
    lower = axes.containers[0].lines[1][0].get_ydata()
    assert lower[0] == pytest.approx(0.05)
    assert np.isnan(lower[1])
    plt.close(figure)


def test_a_run_stands_beside_the_papers_rows_of_its_model_and_data():
    assert paper_setting("llama2-7b", "peak-cf")["table"] == "peak_table_3"
    assert paper_setting("gpt-j-6b", "peak-t")["table"] == "peak_table_4"
    assert paper_setting("llama2-13b", "peak-cf")["table"] == "peak_table_9"
    other = paper_setting("smollm2-135m", "peak-mini-cf")
    assert other == {"table": "peak_table_3", "model": "gpt2-xl", "dataset": "peak-cf"}
    for model, dataset in (("llama2-13b", "peak-cf"), ("gpt-j-6b", "peak-t")):
        rows = beside_paper({"ROME": metrics_table(NOTHING)}, **paper_setting(model, dataset))
        assert [source for _, source in rows.index] == ["ours", f"paper ({model})"]


def test_without_a_measured_record_cells_say_so_and_no_record_is_worst(data):
    metrics = metrics_table(NOTHING)
    assert set(editing_table({"ROME": metrics}).loc["ROME"]) == {"0", "n/a"}
    assert worst_record(metrics, "AFF_hard", data) is None
