"""Findings as differences: hand-computed values and verdicts."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from helpers.editing.editors import Variant, fairer, objectives
from helpers.peak.findings import (
    app_findings,
    fairer_findings,
    findings,
    neighbour_findings,
    objective_findings,
    pooled_fairer_findings,
)
from helpers.results.statistics import unpaired_means

COLUMNS = ["ES", "GS", "LS", "AFF_hard", "ANF_hard", "AFF_random", "ANF_random"]
SPREAD = pd.Series([-0.02, 0.01, 0.0, 0.02, -0.01, 0.03, -0.03])


def metrics(**changes: list[float]) -> pd.DataFrame:
    n = max(map(len, changes.values()), default=3)
    table = pd.DataFrame({column: np.resize([0.5, 0.6, 0.4], n) for column in COLUMNS})
    return table.assign(**changes).rename_axis("case_id")


def evidence_of(found, measure):
    return next(item for item in found if item.measure == measure)


def test_a_paired_difference_and_its_verdict():
    plain = metrics(AFF_hard=[0.9, 0.8, 1.0] * 2, LS=[0.5, 0.5, 0.5] * 2, ES=[1.0, 1.0, 1.0] * 2)
    careful = metrics(AFF_hard=[0.4, 0.4, 0.4] * 2, LS=[0.5, 0.4, 0.6] * 2, ES=[1.0, 0.0, 1.0] * 2)
    found = findings({"ROME": plain, "ROME+APP": careful})
    reduced = evidence_of(found, "AFF hard ROME - ROME+APP")
    assert reduced.difference.mean == pytest.approx((0.5 + 0.4 + 0.6) / 3)
    assert reduced.verdict == "holds"
    assert evidence_of(found, "LS ROME+APP - ROME").verdict == "inconclusive"
    hard = evidence_of(found, "AFF hard - AFF random, plain editors")
    assert hard.difference.mean == pytest.approx((0.4 + 0.2 + 0.6) / 3)
    cost = evidence_of(found, "ES ROME - ROME+APP")
    assert cost.difference.mean == pytest.approx(1 / 3)
    assert cost.verdict == "inconclusive"  # one record in three
    better = metrics(LS=[0.9, 0.9, 0.8] * 2), metrics(LS=[0.1, 0.2, 0.1] * 2)
    found = findings(dict(zip(("MEMIT", "MEMIT+APP"), better, strict=True)))
    assert evidence_of(found, "LS MEMIT+APP - MEMIT").verdict == "reversed"


def test_data_sets_are_compared_without_pairing():
    temporal = metrics(AFF_hard=[0.1, 0.3, 0.2])
    only_here = metrics(AFF_hard=[0.0, 0.0, 0.0])  # a method that the other set lacks
    found = findings({"ROME": metrics(), "KN": only_here}, temporal={"ROME": temporal})
    lower = evidence_of(found, "AFF hard PEAK-CF - PEAK-T, plain editors")
    assert lower.difference == unpaired_means([0.1, 0.3, 0.2], [0.5, 0.6, 0.4]).difference
    only = {"ROME+APP": metrics()}
    assert findings(only, temporal=only) == []


def table(forgets: float, edits: float = 1.0) -> pd.DataFrame:
    """Seven records that differ a little from each other."""
    factors = dict.fromkeys(("AFF_hard", "ANF_hard"), forgets + SPREAD)
    return pd.DataFrame({**factors, "ES": edits, "GS": edits})


def by_measure(evidence):
    return {item.measure: (round(item.difference.mean, 3), item.verdict) for item in evidence}


def test_objectives_are_compared_with_all_of_app_and_with_l1():
    plain, whole, *short = objectives("rome")
    levels = {plain: 0.9, whole: 0.3, short[0]: 0.6, short[1]: 0.4, short[2]: 0.7}
    shifted = {variant: table(level) for variant, level in levels.items()}
    shifted[short[1]]["AFF_hard"] += SPREAD[::-1].to_numpy()  # records move apart
    found = by_measure(objective_findings(shifted, ["rome", "memit"]))  # nothing is there of memit
    assert found["AFF hard, ROME: without L1 - APP"] == (0.3, "holds")
    assert found["ANF hard, ROME: without L1 - without L2"] == (0.2, "holds")
    assert found["AFF hard, ROME: without L1 - without L3"] == (-0.1, "reversed")
    assert len(found) == 10


def test_baselines_neighbours_and_costs_are_compared_with_app():
    plain, mean, added, whole = fairer("ft-m")
    metrics = {plain: table(0.5), mean: table(0.1, edits=0.0), added: table(0.4), whole: table(0.2)}
    found = by_measure(fairer_findings(metrics, ["ft-m"]))
    assert found["AFF hard, FT-M: + (mean) - APP"] == (-0.1, "reversed")
    assert found["AFF hard, FT-M: + (sum) - APP"] == (0.2, "holds")
    assert found["ES, FT-M: plain - + (mean)"] == (1.0, "holds")
    none, one = (Variant("ft-m+app", "neighbours", k) for k in (0.0, 1.0))
    metrics |= {none: table(0.9), one: table(0.6)}
    assert {item.verdict for item in neighbour_findings(metrics, ["ft-m"])} == {"holds"}
    found = by_measure(app_findings(metrics, ["ft-m"]))
    assert found["AFF hard, FT-M: plain - APP"] == (0.3, "holds")
    assert found["GS, FT-M: plain - APP"] == (0.0, "inconclusive")


def test_prune_is_memit_where_each_edit_is_made_alone():
    """Two names of the same edits are one test; after a sequence they differ."""
    metrics = {Variant(e + s): table(0.5) for e in ("memit", "prune") for s in ("", "+app")}
    assert len(app_findings(metrics, ["memit", "prune"])) == 4
    assert len(app_findings(metrics, ["memit", "prune"], alone=False)) == 8
    assert len(app_findings(metrics, ["prune"])) == 4


def test_findings_on_few_relations_are_inconclusive():
    relations = [*"aabbcc"]
    plain, careful = (
        metrics(AFF_hard=[value] * 6).set_index(pd.Index(relations, name="relation"), append=True)
        for value in (0.9, 0.1)
    )
    reduced = evidence_of(
        findings({"ROME": plain, "ROME+APP": careful}), "AFF hard ROME - ROME+APP"
    )
    assert reduced.difference.low > 0
    assert (reduced.verdict, reduced.words) == (
        "inconclusive",
        "inconclusive by relation (3 relations)",
    )


def test_targets_are_pooled_over_the_editors_of_a_record():
    """Ten records: targets forget 0.2 less than APP with one editor, 0.4 less with the other."""
    app = metrics(AFF_hard=[0.6] * 10, AFF_random=[0.5] * 10)
    variants = {}
    for editor, less in (("rome", 0.2), ("memit", 0.4)):
        targets = app.assign(AFF_hard=app["AFF_hard"] - less)
        variants[Variant(f"{editor}+app")] = app
        variants[Variant(f"{editor}+all-sum")] = targets
    found = pooled_fairer_findings(variants, ["rome", "memit"])
    pooled = evidence_of(found, "AFF hard, all editors: + (sum) - APP")
    assert pooled.difference.mean == pytest.approx(-0.3)
    assert (pooled.verdict, pooled.difference.n) == ("reversed", 10)
    assert evidence_of(found, "AFF random, ROME: + (sum) - APP").difference.mean == 0
    assert pooled_fairer_findings(variants, ["ft-m"]) == []
