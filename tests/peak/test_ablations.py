"""The ablations' stored tables, tables and figures, from results made up by hand."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from helpers.editing.editors import Variant, objectives
from helpers.peak.ablation_figures import sensitivity_panels
from helpers.peak.ablations import (
    by_label,
    coefficients_table,
    correlation_table,
    finished,
    said_beside_factors,
    said_by_state,
    said_table,
    sequence_metrics,
    sequence_table,
    studies_of,
    variant_metrics,
    variants_table,
    with_field,
)
from helpers.peak.publish import small
from helpers.peak.said import NOTHING
from helpers.peak.tables import HARD_METRICS, editing_table
from helpers.results.archive import About, Archive
from helpers.results.figure import published

mpl.use("Agg")
NAME = "m_peak-cf"
SOURCE = {"model": "m", "dataset": "peak-cf", "dtype": "float32", "device": "cpu"}
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


def put(folder, key, table, settings):
    about = About(SOURCE, {key: settings}, {"records": 9, "preset": "tuned"})
    Archive(folder / "ablations").put(NAME, {key: small(table)}, about)


@pytest.fixture
def folder(tmp_path):
    """A run with every study, stored piece by piece."""
    app = {"alpha": 0.2, "beta": 0.5, "gamma": 0.2, "margin": 2.0, "neighbours": None}
    losses = {"rome": 3.0, "rome+all": 2.0, "rome+app": 0.2}
    losses |= {str(v): 1.0 for v in objectives("rome")[2:]}
    losses |= {"rome+app@neighbours=0": 3.0, "rome+app@neighbours=3": 1.0, "rome+app@margin=4": 0.1}
    for name, lost in losses.items():
        put(tmp_path, name, scores(lost), {"app": app if "+app" in name else None})
    for method, lost in (("rome", 2.0), ("rome+app", 0.5)):
        for edits in (2, 5):
            put(tmp_path, f"{method} after {edits}", scores(lost, records=edits), {})
    sampling = {"sampling": {"samples": 4}}
    before = said(("correct", 0), ("correct", 1), NOTHING, NOTHING)
    for state in ("before", "again"):
        put(tmp_path, f"said {state}", before, sampling)
    after = said(("correct", 0), ("target", 0), ("hard", 0), NOTHING)
    put(tmp_path, "said by rome", after, sampling)
    return tmp_path


@pytest.fixture
def run(folder):
    return Archive(folder / "ablations").get(NAME)


@pytest.fixture
def stored(run):
    return studies_of(run)


def test_variants_table_marks_what_differs_from_the_reference(stored):
    metrics = finished(variant_metrics(stored.scores), objectives("rome"))
    table = variants_table(metrics, reference=Variant("rome+app"))
    assert table["n"].tolist() == ["6"] * 5
    assert table.loc["ROME", "AFF_hard"].endswith("*")
    assert not table.loc["ROME+APP", "AFF_hard"].endswith("*")
    # Of five edits APP loses three: p 0.04 by Newcombe, which is also the dagger's test; 0.07 by t.
    shares = {"rome": np.ones(5), "rome+app": np.array([0.0, 0, 0, 1, 1])}
    few = {Variant(v): pd.DataFrame(dict.fromkeys(HARD_METRICS, s)) for v, s in shares.items()}
    starred = variants_table(few, reference=Variant("rome+app"))
    assert starred.loc["ROME", "ES"].endswith("*")
    daggered = editing_table(by_label(few), metrics=["ES"])
    assert daggered.loc["ROME+APP", "ES"].endswith("‡")
    # exp(-0.2 (1 + 0.1 c)) of each record's correct probability is left; no rank is lost.
    lost = 100 * np.mean([1 - np.exp(-0.2 * (1 + 0.1 * c)) for c in range(6)])
    assert table.loc["ROME+APP", "AFF_hard"].startswith(f"{lost:.1f} ±")


def test_the_unchanged_method_stands_at_the_margin_of_its_preset(tmp_path):
    """MEND's is 4 in four presets."""
    app = {"alpha": 0.3, "beta": 0.0, "gamma": 0.0, "margin": 4.0, "neighbours": None}
    for name, lost in {"mend+app@margin=2": 1.0, "mend+app": 0.5, "mend+app@margin=6": 0.2}.items():
        put(
            tmp_path,
            name,
            scores(lost),
            {"app": app | ({"margin": 2.0} if name[-1] == "2" else {})},
        )
    run = Archive(tmp_path / "ablations").get(NAME)
    stored = studies_of(run)
    assert stored.margin("mend") == 4.0
    assert stored.margin("rome") is None
    metrics = variant_metrics(stored.scores)
    places = with_field(metrics, "mend", "margin", margin=stored.margin("mend"))
    assert [str(v) for v in places] == ["mend+app@margin=2", "mend+app", "mend+app@margin=6"]
    panel = sensitivity_panels(run, editor="mend").axes[-1]
    assert [tick.get_text() for tick in panel.get_xticklabels()] == ["2", "4", "6"]


def test_coefficients_stand_beside_the_papers(stored):
    table = coefficients_table(stored.settings, paper_model="llama2-7b")
    assert table.loc[("ROME+APP", "ours")].tolist() == ["0.2", "0.5", "0.2", "2"]
    assert table.loc[("ROME+APP", "paper (llama2-7b)")].tolist() == ["0.5", "0.8", "0.1", "2"]


def test_sequence_table_has_a_row_per_checkpoint(stored):
    table = sequence_table(sequence_metrics(stored))
    assert table.index.tolist() == [("ROME", 2), ("ROME", 5), ("ROME+APP", 2), ("ROME+APP", 5)]
    mean = 100 * sequence_metrics(stored)["rome", 5]["AFF_hard"].mean()
    assert table.loc[("ROME", 5), "AFF_hard"].startswith(f"{mean:.1f} ")


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
    drawn = {name: entry.draw() for name, entry in published(folder, chapter="04").items()}
    keys = ["editors", "fairer", "neighbours", "objectives_rome", "said", "sensitivity_rome"]
    assert [f"04_{key}_{NAME}" for key in (*keys, "sequences")] == list(drawn)
    assert all(figure.axes for figure in drawn.values())
    titles = {name.split("_")[1]: figure.get_suptitle() for name, figure in drawn.items()}
    assert titles["editors"] == "APP lowers the noise of 1 of 1 editors, the forgetting of 1 of 1"
    assert titles["sequences"] == "After 5 edits APP lowers the forgetting of ROME"
    assert "n = 6 records" in drawn[f"04_editors_{NAME}"].get_supxlabel()
    assert "n = 2, 5 records" in drawn[f"04_sequences_{NAME}"].get_supxlabel()
