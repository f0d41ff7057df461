"""How sampled and exact probabilities relate, from stored scores; needs no model."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd

from helpers.thinkedit.metrics import OVERALL, chain_table, pooled_preservation, pooled_recovery
from helpers.thinkedit.tables import context_table, sampled_facts, steps_table


def later_mentions(compared: pd.DataFrame) -> pd.DataFrame:
    """What counting a name anywhere adds to beginning with it, by model and form.

    Returns:
        One row per (model, form): means over facts of ``exact``, ``begins``, ``mentions``; the number
        of ``facts``; and ``apart``, the largest distance of exact and begins in standard errors of
        the share (NaN without exact).
    """
    spread = (compared["exact"] * (1 - compared["exact"]) / compared["n"]) ** 0.5
    apart = (compared["begins"] - compared["exact"]).abs() / spread
    means = compared.assign(apart=apart).groupby(["model", "form"], sort=True)
    return means.agg(
        exact=("exact", "mean"),
        begins=("begins", "mean"),
        mentions=("mentions", "mean"),
        facts=("fact", "size"),
        apart=("apart", "max"),
    ).reset_index()


def null_table(draws: pd.DataFrame, chains: pd.DataFrame) -> pd.DataFrame:
    """IFR and CKP of no edit at all: every two draws of the unedited model, one as before, one as after.

    Args:
        draws: sampled scores of the unedited model with columns model and seed.
        chains: which facts make up which chains.

    Returns:
        One row per (model, measure): ``mean`` over the pairs of draws, ``low`` and ``high`` (smallest
        and largest), ``pairs``. What an edit does shows only beyond them.
    """
    rows = []
    for model, own in draws.groupby("model", sort=True):
        by_seed = {seed: part.drop(columns=["model", "seed"]) for seed, part in own.groupby("seed")}
        values: dict[str, list[float]] = {"IFR": [], "CKP": []}
        for before, after in combinations(by_seed.values(), 2):
            for first, second in ((before, after), (after, before)):
                facts = sampled_facts(first, second)
                recovery = pooled_recovery(chain_table(steps_table(facts, chains)))
                context = pooled_preservation(context_table(facts, chains))
                overall = recovery.loc[recovery["steps"] == OVERALL, "value"]
                values["IFR"].append(float(overall.iloc[0]))
                values["CKP"].append(float(context["value"].iloc[0]))
        for measure, found in values.items():
            rows.append((model, measure, np.mean(found), min(found), max(found), len(found)))
    return pd.DataFrame(rows, columns=["model", "measure", "mean", "low", "high", "pairs"])
