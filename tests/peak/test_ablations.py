"""The ablations' tables, from results made up by hand and from the published run."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd

from helpers.editing.editors import Variant, objectives
from helpers.peak.ablations import (
    by_label,
    correlation_table,
    finished,
    said_metrics,
    said_table,
    variants_table,
)
from helpers.peak.metrics import metrics_table
from helpers.peak.said import NOTHING
from helpers.peak.tables import HARD_METRICS, editing_table

mpl.use("Agg")
KEYS = ["case_id", "role", "prompt_index", "list", "answer_index"]
SIZES = {"target": 1, "correct": 3, "hard": 3, "random": 2}
LEVEL = {"target": -4.0, "correct": -1.0, "hard": -3.0, "random": -6.0, "locality": -1.0}
APP = Variant("rome+app")


def metrics(lost: float, records: int = 6) -> pd.DataFrame:
    """Correct answers lose ``lost`` (natural logarithm), a little more in every record."""
    rows = []
    for case in range(records):
        for role in ("edit", "paraphrase"):
            rows += [(case, role, 0, name, i) for name, n in SIZES.items() for i in range(n)]
        rows += [(case, "locality", 0, name, 0) for name in ("target", "locality")]
    table = pd.DataFrame(rows, columns=KEYS).assign(tokens=1)
    before = table["list"].map(LEVEL) - 0.1 * table["answer_index"]
    change = table["list"].map({"target": 3.5, "correct": -lost}).fillna(0)
    after = before + change * (1 + 0.1 * table["case_id"])
    return metrics_table(table.assign(sum_before=before, sum_after=after))


def said(*answers: tuple[str, int], records: int = 6) -> pd.DataFrame:
    """Every record says the same: one answer per sample."""
    rows = [(case, i, *place) for case in range(records) for i, place in enumerate(answers)]
    return pd.DataFrame(rows, columns=["case_id", "sample", "list", "answer_index"])


def test_variants_table_marks_what_differs_from_the_reference():
    losses = dict(zip(objectives("rome"), (3.0, 0.2, 1.0, 1.0, 1.0), strict=True))
    all_of_them = {variant: metrics(lost) for variant, lost in losses.items()}
    table = variants_table(finished(all_of_them, objectives("rome")), reference=APP)
    assert table["n"].tolist() == ["6"] * 5
    assert table.loc["ROME", "AFF_hard"].endswith("*")
    assert not table.loc["ROME+APP", "AFF_hard"].endswith("*")
    # exp(-0.2 (1 + 0.1 c)) of each record's correct probability is left; no rank is lost.
    lost = 100 * np.mean([1 - np.exp(-0.2 * (1 + 0.1 * c)) for c in range(6)])
    assert table.loc["ROME+APP", "AFF_hard"].startswith(f"{lost:.1f} ±")
    # Of five edits APP loses three: p 0.04 by Newcombe, which is also the dagger's test; 0.07 by t.
    shares = {Variant("rome"): np.ones(5), APP: np.array([0.0, 0, 0, 1, 1])}
    few = {v: pd.DataFrame(dict.fromkeys(HARD_METRICS, share)) for v, share in shares.items()}
    assert variants_table(few, reference=APP).loc["ROME", "ES"].endswith("*")
    assert editing_table(by_label(few), metrics=["ES"]).loc["ROME+APP", "ES"].endswith("‡")


def test_said_table_and_correlations():
    before = said(("correct", 0), ("correct", 1), NOTHING, NOTHING)
    after = said(("correct", 0), ("target", 0), ("hard", 0), NOTHING)
    measures = {"again": said_metrics(before, before), "rome": said_metrics(before, after)}
    table = said_table(measures)
    assert table.loc["unedited, again", "list forgetting"] == "0.0 ± 0.0"
    shown = table.loc["ROME", ["list forgetting", "list noise", "target share"]].tolist()
    assert shown == ["50.0 ± 0.0", "33.3 ± 0.0", "25.0 ± 0.0"]  # every record says the same
    beside = measures["rome"].assign(label="ROME", AFF_hard=0.5, ANF_hard=0.5)
    # So there are no ranks to compare.
    assert correlation_table(beside).loc["ROME", "AFF ~ list forgetting"] == "nan (p nan, n 6)"
