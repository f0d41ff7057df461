"""Tables and figures of PEAK results made up by hand and of those that are published."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from helpers.peak.metrics import COLUMNS, method_metrics, metrics_table
from helpers.peak.records import load_peak
from helpers.peak.run import questions
from helpers.peak.tables import beside_paper, caption_of, editing_table, paper_setting, scores_of
from helpers.results.archive import About, Archive
from helpers.results.evaluation import small
from helpers.results.figure import published_figures

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
    return load_peak("peak-mini-cf", limit=10)


@pytest.fixture(scope="module")
def both(data):
    return {"ROME": scores(data, 0, 5.0), "ROME+APP": scores(data, 0, 0.5)}


def test_editing_table_marks_what_app_changes(both):
    table = editing_table(method_metrics(both)).table
    assert table.loc["ROME+APP", "AFF_hard"].endswith("†")
    assert "†" not in "".join(table.loc["ROME"])
    mean = 100 * metrics_table(both["ROME"])["AFF_hard"].mean()
    assert table.loc["ROME", "AFF_hard"].startswith(f"{mean:.1f} ")
    swapped = {"ROME": both["ROME+APP"], "ROME+APP": both["ROME"]}
    table = editing_table(method_metrics(swapped)).table
    assert table.loc["ROME+APP", "AFF_hard"].endswith("‡")
    assert table.loc["ROME", "Holm"] == ""
    assert table.loc["ROME+APP", "Holm"].startswith("all")
    assert "Holm" not in editing_table({"ROME": metrics_table(both["ROME"])}).table
    empty = editing_table({"ROME": metrics_table(NOTHING)}).table
    assert set(empty.loc["ROME"]) == {"0", "n/a"}


def test_holm_takes_the_weak_marks_away():
    steady = pd.Series(np.linspace(0, 0.4, 9))
    values = {"AFF_hard": steady, "ANF_hard": steady}
    uneven = np.array([0.1, 0, 0, 0.1, 0.1, 0.1, 0, 0.1, 0.1])
    strong = {"AFF_hard": steady + 0.5, "ANF_hard": steady + uneven}  # p: 2 / 2^9 and 2 / 2^6
    metrics = {"ROME": pd.DataFrame(strong), "ROME+APP": pd.DataFrame(values)}
    row = editing_table(metrics, metrics=["AFF_hard", "ANF_hard"]).table.loc["ROME+APP"]
    assert "†" in row["ANF_hard"]  # p = 0.031 of two tests survives, as the larger one
    assert row["Holm"] == "all"
    doubled = {**metrics, "MEMIT": metrics["ROME"], "MEMIT+APP": metrics["ROME+APP"]}
    row = editing_table(doubled, metrics=["AFF_hard", "ANF_hard"]).table.loc["ROME+APP"]
    assert row["Holm"] == "all but ANF_hard"


@pytest.mark.parametrize(
    ("model", "dataset", "labels"),
    [
        ("llama2-7b", "peak-cf", ["PEAK, Table 3: llama2-7b, peak-cf"]),
        ("gpt-j-6b", "mine-t", ["PEAK, Table 4: gpt-j-6b, peak-t"]),
        ("m", "my-t", [f"PEAK, Table 4: {m}, peak-t" for m in ("gpt2-xl", "gpt-j-6b")]),
    ],
)
def test_the_paper_has_the_same_model_or_all_of_its_own(model, dataset, labels):
    assert list(paper_setting(model, dataset)) == labels


def test_rows_are_labelled_and_the_papers_locality_is_its_codes():
    setting, nothing = paper_setting("gpt2-xl", "peak-cf"), metrics_table(NOTHING)
    (label,) = setting
    methods = ("ROME", "FT-L", "AlphaEdit")
    table = beside_paper(dict.fromkeys(methods, nothing), setting).table
    assert [len(table.loc[method]) for method in methods] == [2, 2, 1]
    row = table.loc[("ROME", label)]
    assert (row["ES"], row["LS_held"], row["LS_authors"]) == ("99.3", "–", "90.6")
    assert table.loc[("FT-L", label), "ES"] == "91.0"


def test_the_printed_slip_is_marked():
    setting = paper_setting("gpt2-xl", "peak-t")
    table = beside_paper({"MEND+APP": metrics_table(NOTHING)}, setting).table
    assert table["AFF_hard"].tolist() == ["nan", "26.3*"]


def test_published_runs_hold_scores_only_and_every_figure_is_drawn(tmp_path, both):
    source = {"model": "m", "dataset": "peak", "dtype": "float32", "device": "cpu"}
    about = About(source, {"ROME": {"v_lr": 0.5}}, {"records": 3, "preset": "tuned"})
    mine = Archive(tmp_path / "peak")
    mine.put("m_peak", {label: small(table) for label, table in both.items()}, about)
    run = mine.get("m_peak")
    assert caption_of(run) == "ours: m, peak, 3 records, preset tuned, float32 on cpu"
    again = scores_of(run)["ROME"].drop(columns="relation")
    pd.testing.assert_frame_equal(again, both["ROME"], check_dtype=False, rtol=1e-6, atol=1e-6)
    drawn = {
        name.split("_")[1]: e.draw()
        for name, e in published_figures(tmp_path, chapter="03").items()
    }
    assert list(drawn) == ["lists", "paper", "reading", "verdicts"]
    assert all(figure.axes for figure in drawn.values())
