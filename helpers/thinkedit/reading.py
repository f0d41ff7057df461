"""ThinkEdit's measures on small made-up numbers: a picture each, and numbers to follow by hand."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.results.style import PALETTE, captioned, use_style
from helpers.thinkedit.metrics import (
    FACT_COLUMNS,
    OVERALL,
    STEP_COLUMNS,
    chain_table,
    preservation_per_edit,
    recovery_per_edit,
)

# Probabilities of each step before and after the edit, by chain; of each fact about other subjects.
CHAINS: Mapping[str, tuple[tuple[float, float], ...]] = {
    "1 step": ((0.9, 0.09),),
    "2 steps": ((0.8, 0.2), (0.5, 0.5)),
}
FACTS: Mapping[str, tuple[float, float]] = {
    "fact 1": (0.6, 0.6),
    "fact 2": (0.5, 0.4),
    "fact 3": (0.8, 0.48),
}


def worked() -> dict[str, float]:
    """IFR and CKP of the made-up chains and facts."""
    steps = [(1, name, i, *p) for name, chain in CHAINS.items() for i, p in enumerate(chain, 1)]
    facts = [(1, name, *p) for name, p in FACTS.items()]
    known = {"known_before": True, "known_after": True}
    table = pd.DataFrame(steps, columns=list(STEP_COLUMNS[:5])).assign(**known)
    context = pd.DataFrame(facts, columns=list(FACT_COLUMNS[:4])).assign(**known)
    recovery = recovery_per_edit(chain_table(table)).set_index("steps")
    return {
        "IFR": float(recovery["value"][OVERALL]),
        "CKP": float(preservation_per_edit(context)["value"].item()),
    }


def pictures() -> Figure:
    """What is left of the old fact's chains, and of the facts around it, a panel each."""
    use_style()
    found = worked()
    figure, (recovery, preservation) = plt.subplots(1, 2, figsize=(7.2, 2.0), sharex=True)
    _moved(recovery, _products())
    recovery.set_title(
        f"IFR = {found['IFR']:.2f}: little of the chains\nto the old fact is left", fontsize=9
    )
    _moved(preservation, FACTS)
    preservation.set_title(
        f"CKP = {found['CKP']:.2f}: most facts about\nother subjects are left", fontsize=9
    )
    return captioned(figure, "Made-up numbers. ○ before the edit, ● after; the ratio at the right")


def _products() -> dict[str, tuple[float, float]]:
    """R and R* of every chain."""
    pairs = {name: np.prod(steps, axis=0) for name, steps in CHAINS.items()}
    return {name: (float(before), float(after)) for name, (before, after) in pairs.items()}


def _moved(axes: Axes, values: Mapping[str, tuple[float, float]]) -> None:
    rows = np.arange(len(values))[::-1]
    for row, (before, after) in zip(rows, values.values(), strict=True):
        axes.plot([before, after], [row, row], color="0.7")
        axes.plot(before, row, "o", mfc="none", color=PALETTE[0])
        axes.plot(after, row, "o", color=PALETTE[0])
        axes.text(1.02, row, f"× {after / before:.2f}", va="center", fontsize=8)
    axes.set(xlim=(0, 1.15), ylim=(-0.6, len(values) - 0.4), xlabel="probability")
    axes.set_yticks(rows, list(values))
    axes.grid(axis="y", visible=False)
