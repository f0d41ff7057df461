"""Tables, stored runs and figures of PEAK results made up by hand."""

from __future__ import annotations

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from helpers.peak.figures import grouped_points
from helpers.peak.metrics_table import COLUMNS, metrics_table
from helpers.peak.records import load_peak
from helpers.peak.run import questions
from helpers.peak.stored_scores import caption_of, scores_of, small
from helpers.peak.tables import (
    Caption,
    by_relation,
    editing_table,
    method_metrics,
    ranking_in_words,
    unedited,
    worst_record,
)
from helpers.results.archive import About, Archive, archive
from helpers.results.figure import published, save
from helpers.results.style import save_figure

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
    assert table.loc["ROME", "AFF_hard"].startswith(f"{mean:.1f} ")


def test_a_significant_loss_has_its_mark_and_holm_its_column(both):
    swapped = {"ROME": both["ROME+APP"], "ROME+APP": both["ROME"]}
    table = editing_table(method_metrics(swapped))
    assert table.loc["ROME+APP", "AFF_hard"].endswith("‡")
    assert table.loc["ROME", "Holm"] == ""
    assert table.loc["ROME+APP", "Holm"].startswith("all")
    assert "Holm" not in editing_table({"ROME": metrics_table(both["ROME"])})


def test_holm_takes_the_weak_marks_away():
    steady = pd.Series(np.linspace(0, 0.4, 9))
    values = {"AFF_hard": steady, "ANF_hard": steady}
    uneven = np.array([0.1, 0, 0, 0.1, 0, 0.1, 0, 0.1, 0])
    strong = {"AFF_hard": steady + 0.5, "ANF_hard": steady + uneven}
    metrics = {"ROME": pd.DataFrame(strong), "ROME+APP": pd.DataFrame(values)}
    row = editing_table(metrics, metrics=["AFF_hard", "ANF_hard"]).loc["ROME+APP"]
    assert "†" in row["ANF_hard"]  # p = 0.035 of two tests: 0.035 survives, as the larger one
    assert row["Holm"] == "all"
    doubled = {**metrics, "MEMIT": metrics["ROME"], "MEMIT+APP": metrics["ROME+APP"]}
    row = editing_table(doubled, metrics=["AFF_hard", "ANF_hard"]).loc["ROME+APP"]
    assert row["Holm"] == "all but ANF_hard"


def test_the_number_of_records_stands_in_the_title_where_it_is_one():
    values = {"AFF_hard": [0.5, np.nan, 0.4], "ES": [1.0, 1.0, np.nan]}
    other = {"AFF_hard": [0.5, np.nan, 0.4], "ES": [1.0, 1.0, 0.0]}
    both = {"ROME": pd.DataFrame(values), "KN": pd.DataFrame(other)}
    table = editing_table(both, metrics=["AFF_hard", "ES"])
    assert list(table.columns) == ["records", "AFF_hard (n=2)", "ES"]
    assert table.loc["ROME", "ES"].endswith("(n=2)")


def test_locality_stands_as_the_authors_compute_it_and_unfiltered():
    stored = archive("peak").get("smollm2-135m_peak-cf")
    metrics = method_metrics({"ROME": scores_of(stored)["ROME"]})
    means = 100 * metrics["ROME"][["LS_authors", "LS", "LS_unfiltered"]].mean()
    assert means.round().tolist() == [77, 83, 53]
    before = unedited(scores_of(stored))["unedited"]
    assert round(100 * before["LS_unfiltered"].mean()) == 62
    assert before["LS"].mean() == 1
    assert (before["AFF_hard"].dropna() == 0).all()
    theirs = metrics_table(scores_of(stored)["ROME"], compat="authors")["LS"]
    pd.testing.assert_series_equal(theirs, metrics["ROME"]["LS_authors"], check_names=False)


def test_captions_say_which_weights_a_model_has():
    assert "dequantised from 4 bits" in str(caption_of(archive("peak").get("smollm2-135m_peak-cf")))
    assert str(CAPTION).startswith("ours: m, peak-mini-cf, 6 records")


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


@pytest.fixture
def run(tmp_path, both):
    source = {"model": "m", "dataset": "peak", "dtype": "float32", "device": "cpu"}
    about = About(source, {"ROME": {"v_lr": 0.5}}, {"records": 3, "preset": "tuned"})
    archive = Archive(tmp_path / "peak")
    archive.put("m_peak", {label: small(table) for label, table in both.items()}, about)
    return archive.get("m_peak")


def test_published_runs_hold_scores_only_and_read_back(run, both):
    assert str(caption_of(run)) == "ours: m, peak, 3 records, preset tuned, float32 on cpu"
    again = scores_of(run)
    assert list(again) == ["ROME", "ROME+APP"]
    pd.testing.assert_frame_equal(
        again["ROME"], both["ROME"], check_dtype=False, rtol=1e-6, atol=1e-6
    )
    assert "answer" not in again["ROME"]


def test_every_figure_is_drawn_and_bytes_are_stable(tmp_path, run):
    names = list(published(tmp_path, chapter="03"))
    kinds = [name.split("_")[1] for name in names]
    assert kinds == ["additivity", "lists", "paper", "reading", "spread"]
    for name in names:
        first, again = (
            [path.read_bytes() for path in save(name, tmp_path / folder, data=tmp_path)]
            for folder in ("one", "two")
        )
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


def test_without_a_measured_record_cells_say_so_and_no_record_is_worst(data):
    metrics = metrics_table(NOTHING)
    assert set(editing_table({"ROME": metrics}).loc["ROME"]) == {"0", "n/a"}
    assert worst_record(metrics, "AFF_hard", data) is None
