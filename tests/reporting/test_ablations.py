"""The ablations' stored tables, tables and figures, from results made up by hand."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from helpers.editing.variants import Variant, objectives
from helpers.metrics.answer_lists import NOTHING
from helpers.metrics.peak_tables import summarise
from helpers.reporting import ablation_gallery as gallery
from helpers.reporting.ablation_tables import (
    by_label,
    coefficients_table,
    correlation_table,
    finished,
    said_beside_factors,
    said_by_state,
    said_table,
    sequence_metrics,
    sequence_table,
    variant_metrics,
    variants_table,
    with_field,
)
from helpers.reporting.ablations_stored import (
    add_said,
    add_scores,
    load_ablations,
    sequence_key,
    stored_ablations,
)
from helpers.reporting.peak_tables import Caption
from helpers.reporting.stored import StoredRun

mpl.use("Agg")
NAME = "m_peak-cf"
CAPTION = Caption("m", "peak-cf", 9, "tuned", "float32", "cpu")
KEYS = ["case_id", "role", "prompt_index", "list", "answer_index"]
SIZES = {"target": 1, "correct": 3, "hard": 3, "random": 2}
LEVEL = {"target": -4.0, "correct": -1.0, "hard": -3.0, "random": -6.0, "locality": -1.0}


def scores(lost: float, records: int = 6) -> pd.DataFrame:
    """Correct answers lose ``lost`` (natural logarithm), a little more in every record."""
    rows = []
    for case in range(records):
        for role in ("edit", "paraphrase"):
            rows += [(case, role, 0, name, i) for name, n in SIZES.items() for i in range(n)]
        rows += [(case, "locality", 0, name, 0) for name in ("target", "locality")]
    table = pd.DataFrame(rows, columns=KEYS).assign(tokens=1)
    before = table["list"].map(LEVEL) - 0.1 * table["answer_index"]
    change = table["list"].map({"target": 3.5, "correct": -lost}).fillna(0)
    return table.assign(sum_before=before, sum_after=before + change * (1 + 0.1 * table["case_id"]))


def said(*answers: tuple[str, int], records: int = 6) -> pd.DataFrame:
    """Every record says the same: one answer per sample."""
    rows = [(case, i, *place) for case in range(records) for i, place in enumerate(answers)]
    return pd.DataFrame(rows, columns=["case_id", "sample", "list", "answer_index"])


@pytest.fixture
def folder(tmp_path):
    """A run with every study, stored piece by piece."""
    app = {"alpha": 0.2, "beta": 0.5, "gamma": 0.2, "margin": 2.0, "neighbours": None}
    losses = {"rome": 3.0, "rome+all": 2.0, "rome+app": 0.2}
    losses |= {str(v): 1.0 for v in objectives("rome")[2:]}
    losses |= {"rome+app@neighbours=0": 3.0, "rome+app@neighbours=3": 1.0, "rome+app@margin=4": 0.1}
    for name, lost in losses.items():
        table, settings = {name: scores(lost)}, {name: {"app": app if "+app" in name else None}}
        add_scores(NAME, StoredRun(CAPTION, table, settings), folder=tmp_path)
    for method, lost in (("rome", 2.0), ("rome+app", 0.5)):
        for edits in (2, 5):
            key = sequence_key(method, edits)
            table = {key: scores(lost, records=edits)}
            add_scores(
                NAME, StoredRun(CAPTION, table, {key: {}}), part="sequences", folder=tmp_path
            )
    before = said(("correct", 0), ("correct", 1), NOTHING, NOTHING)
    drawn = {"before": before, "again": before}
    add_said(NAME, CAPTION, drawn, {"samples": 4}, {}, tmp_path)
    after = said(("correct", 0), ("target", 0), ("hard", 0), NOTHING)
    add_said(NAME, CAPTION, {"rome": after}, {"samples": 4}, {"rome": {}}, tmp_path)
    return tmp_path


@pytest.fixture
def stored(folder):
    return load_ablations(NAME, folder)


def test_pieces_are_added_and_read_back(folder, stored):
    assert stored_ablations(folder) == [NAME]
    assert list(stored.scores)[:3] == ["rome", "rome+all", "rome+app"]
    assert set(stored.sequences) == {(m, n) for m in ("rome", "rome+app") for n in (2, 5)}
    assert list(stored.said) == ["before", "again", "rome"]
    assert stored.sampling == {"samples": 4}
    written = scores(3.0)
    pd.testing.assert_frame_equal(stored.scores["rome"], written, check_dtype=False, rtol=1e-6)


def test_variants_under_other_hyperparameters_are_taken_out(tmp_path):
    def add(name, rate, alpha=None, stop="total"):
        app = alpha and {"alpha": alpha, "beta": 0.5, "margin": 2.0}
        settings = {"hyperparameters": {"v_lr": rate, "stop_on": stop}, "app": app}
        add_scores(NAME, StoredRun(CAPTION, {name: scores(1.0)}, {name: settings}), folder=tmp_path)
        return sorted(load_ablations(NAME, tmp_path).scores)

    add("memit", 0.1)
    add("rome", 0.5)
    assert add("rome+app", 0.5, alpha=0.2, stop="nll") == ["memit", "rome", "rome+app"]
    # An own change of alpha is no contradiction, another beta or coefficient in force is.
    assert "rome+app" in add("rome+app@alpha=0x", 0.5, alpha=0.1)
    kept = add("rome+app@margin=4", 0.5, alpha=0.3)
    assert kept == ["memit", "rome", "rome+app@alpha=0x", "rome+app@margin=4"]
    assert add("rome", 0.4) == ["memit", "rome"]
    files = [file.name for file in (tmp_path / NAME / "scores").glob("*.parquet")]
    assert sorted(files) == ["memit.parquet", "rome.parquet"]


def test_states_drawn_otherwise_are_taken_out(tmp_path):
    def add(state, samples, rate=None):
        settings = {} if rate is None else {state: {"hyperparameters": {"v_lr": rate}}}
        add_said(NAME, CAPTION, {state: said(NOTHING)}, {"samples": samples}, settings, tmp_path)
        return sorted(load_ablations(NAME, tmp_path).said)

    add("before", 30)
    add("memit", 30, rate=0.1)
    assert add("rome", 30, rate=0.5) == ["before", "memit", "rome"]
    assert add("rome+app", 30, rate=0.4) == ["before", "memit", "rome+app"]
    assert add("before", 3) == ["before"]  # three samples cannot be compared with thirty
    assert [file.name for file in (tmp_path / NAME / "said").glob("*.parquet")] == [
        "before.parquet"
    ]


def test_captions_count_the_records_behind_a_table(stored):
    assert "first 6 records" in stored.described(stored.scores["rome"])
    assert "first 2–5 records" in stored.described(*stored.sequences.values())


def test_unknown_run_names_the_command(folder):
    with pytest.raises(KeyError, match="python -m helpers publish"):
        load_ablations("none", folder)


def test_a_run_with_one_study_is_read(tmp_path):
    add_said(NAME, CAPTION, {"before": said(NOTHING)}, {}, {}, tmp_path)
    only = load_ablations(NAME, tmp_path)
    assert only.caption == CAPTION
    assert only.scores == {}
    assert said_beside_factors(only).empty


def test_variants_table_marks_what_differs_from_the_reference(stored):
    metrics = finished(variant_metrics(stored.scores), objectives("rome"))
    table = variants_table(metrics, reference=Variant("rome+app"), columns=["ES", "AFF_hard"])
    assert table["n"].tolist() == ["6"] * 5
    assert table.loc["ROME", "AFF_hard"].endswith("*")
    assert not table.loc["ROME+APP", "AFF_hard"].endswith("*")
    # exp(-0.2 (1 + 0.1 c)) of each record's correct probability is left; no rank is lost.
    lost = 100 * np.mean([1 - np.exp(-0.2 * (1 + 0.1 * c)) for c in range(6)])
    assert table.loc["ROME+APP", "AFF_hard"].startswith(f"{lost:.1f} ±")


def test_with_field_puts_the_unchanged_method_in_its_place(stored):
    metrics = variant_metrics(stored.scores)
    assert [str(v) for v in with_field(metrics, "rome", "neighbours")] == [
        "rome+app@neighbours=0",
        "rome+app@neighbours=3",
        "rome+app",
    ]
    assert [v.label for v in with_field(metrics, "rome", "margin")] == [
        "ROME+APP",
        "ROME+APP, M = 4",
    ]
    assert "ROME+APP, without L1" in by_label(metrics)


def test_coefficients_stand_beside_the_papers(stored):
    table = coefficients_table(stored.settings, paper_model="llama2-7b")
    assert table.loc[("ROME+APP", "ours")].tolist() == ["0.2", "0.5", "0.2", "2"]
    assert table.loc[("ROME+APP", "paper (llama2-7b)")].tolist() == ["0.5", "0.8", "0.1", "2"]


def test_sequence_table_has_a_row_per_checkpoint(stored):
    table = sequence_table(sequence_metrics(stored))
    assert table.index.tolist() == [("ROME", 2), ("ROME", 5), ("ROME+APP", 2), ("ROME+APP", 5)]
    metrics = sequence_metrics(stored)["rome", 5]["AFF_hard"]
    after_five = summarise(metrics.to_frame()).loc["AFF_hard"]
    mean, half = 100 * after_five["mean"], 50 * (after_five["high"] - after_five["low"])
    assert table.loc[("ROME", 5), "AFF_hard"] == f"{mean:.1f} ± {half:.1f}"
    plain, protected = (
        float(table.loc[(method, 5), "AFF_hard"].split()[0]) for method in ("ROME", "ROME+APP")
    )
    assert plain > protected


def test_said_table_and_correlations(stored):
    table = said_table(said_by_state(stored))
    assert table.loc["unedited, again", "list forgetting"] == "0.0 ± 0.0"
    assert table.loc["ROME", "list forgetting"] == "50.0 ± 0.0"  # every record says the same
    assert table.loc["ROME", "list noise"] == "33.3 ± 0.0"
    assert table.loc["ROME", "target share"] == "25.0 ± 0.0"
    beside = said_beside_factors(stored)
    assert beside["label"].unique().tolist() == ["ROME"]
    # So there are no ranks to compare.
    assert correlation_table(beside).loc["ROME", "AFF ~ list forgetting"] == "nan (p nan, n 6)"


def test_every_figure_is_drawn_from_what_is_stored(folder):
    drawn = {name: draw() for name, _, draw in gallery.ablation_figures(folder)}
    keys = ["objectives_rome", "neighbours", "fairer", "editors", "sensitivity_rome"]
    assert [f"04_{key}_{NAME}" for key in (*keys, "sequences", "said")] == list(drawn)
    assert all(figure.axes for figure in drawn.values())


def test_an_unfinished_study_is_drawn_too(tmp_path):
    for name in ("rome", "rome+app@alpha=0x", "memit", "memit+all"):
        settings = {name: {"app": None}}
        add_scores(NAME, StoredRun(CAPTION, {name: scores(1.0)}, settings), folder=tmp_path)
    figures = {name: draw() for name, _, draw in gallery.ablation_figures(tmp_path)}
    names = {f"04_{key}_{NAME}" for key in ("objectives_rome", "fairer", "editors")}
    assert set(figures) == names
