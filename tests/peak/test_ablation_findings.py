"""The paper's claims about APP's parts, on metrics made up by hand and on the published run."""

from __future__ import annotations

import pandas as pd

from helpers.editing.editors import Variant, fairer, objectives
from helpers.peak.ablation_findings import (
    app_findings,
    fairer_findings,
    neighbour_findings,
    objective_findings,
)

SPREAD = pd.Series([-0.02, 0.01, 0.0, 0.02, -0.01])


def table(forgets: float, edits: float = 1.0) -> pd.DataFrame:
    """Five records that differ a little from each other."""
    factors = dict.fromkeys(("AFF_hard", "ANF_hard"), forgets + SPREAD)
    return pd.DataFrame({**factors, "ES": edits, "GS": edits})


def by_measure(evidence):
    return {item.measure: (round(item.difference.mean, 3), item.verdict) for item in evidence}


def test_objectives_are_compared_with_all_of_app_and_with_l1():
    plain, whole, *short = objectives("rome")
    levels = {plain: 0.9, whole: 0.3, short[0]: 0.6, short[1]: 0.4, short[2]: 0.7}
    shifted = {variant: table(level) for variant, level in levels.items()}
    shifted[short[1]]["AFF_hard"] += SPREAD[::-1].to_numpy()  # records move apart
    evidence = objective_findings(shifted, ["rome", "memit"])  # of memit nothing is at hand
    found = by_measure(evidence)
    assert found["AFF hard, ROME: without L1 - APP"] == (0.3, "holds")
    assert found["ANF hard, ROME: without L1 - without L2"] == (0.2, "holds")
    assert found["AFF hard, ROME: without L1 - without L3"] == (-0.1, "reversed")
    assert len(found) == 10


def test_both_weightings_are_compared_with_app_and_with_the_plain_method():
    plain, mean, added, whole = fairer("ft-m")
    metrics = {plain: table(0.5), mean: table(0.1, edits=0.0), added: table(0.4), whole: table(0.2)}
    found = by_measure(fairer_findings(metrics, ["ft-m"]))
    assert found["AFF hard, FT-M: + (mean) - APP"] == (-0.1, "reversed")
    assert found["AFF hard, FT-M: + (sum) - APP"] == (0.2, "holds")
    assert found["ES, FT-M: plain - + (mean)"] == (1.0, "holds")
    assert found["ES, FT-M: plain - + (sum)"] == (0.0, "inconclusive")


def test_neighbours_and_costs():
    whole = Variant("rome+app")
    none, one = (Variant("rome+app", "neighbours", k) for k in (0.0, 1.0))
    metrics = {Variant("rome"): table(0.9), none: table(0.9), one: table(0.6), whole: table(0.3)}
    assert {item.verdict for item in neighbour_findings(metrics, ["rome"])} == {"holds"}
    found = by_measure(app_findings(metrics, ["rome"]))
    assert found["AFF hard, ROME: plain - APP"] == (0.6, "holds")
    assert found["GS, ROME: plain - APP"] == (0.0, "inconclusive")
