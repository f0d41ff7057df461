"""PEAK's measures on one small made-up fact: a picture each, and numbers to follow by hand."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.peak.additivity import additivity
from helpers.results.style import PALETTE, captioned, use_style

Answers = Mapping[str, tuple[float, float]]
"""Probability before and after the edit, by answer."""

NEW: Answers = {"Thailand (new)": (0.001, 0.6)}
CORRECT: Answers = {"Egypt": (0.3, 0.1), "Chad": (0.12, 0.03), "Libya": (0.05, 0.004)}
FALSE: Answers = {"Laos": (0.02, 0.05), "Myanmar": (0.01, 0.002)}
MADE_UP = "Made-up numbers. ○ before the edit, ● after; log scale"


def worked() -> dict[str, float]:
    """RFF, RNF, CPC, FPC, AFF and ANF of the made-up fact."""
    correct, false = (np.log(list(answers.values())).T for answers in (CORRECT, FALSE))
    return additivity(
        correct_before=correct[0],
        correct_after=correct[1],
        false_before=false[0],
        false_after=false[1],
    )


def pictures() -> Figure:
    """Success, forgetting and noise of one edit, a panel each."""
    use_style()
    found = worked()
    strongest = max(after for _, after in FALSE.values())
    weakest = min(after for _, after in CORRECT.values())
    figure, (success, forgetting, noise) = plt.subplots(1, 3, figsize=(7.2, 2.3), sharex=True)
    _moved(success, {**NEW, **CORRECT}, weakest, "weakest correct\nanswer after")
    success.set_title("ES = 1: the new answer\nhas joined the list", fontsize=9)
    _moved(forgetting, CORRECT, strongest, "strongest false\nanswer after")
    forgetting.set_title(
        f"AFF = {found['AFF']:.2f}: correct answers\nfall, most below a false one", fontsize=9
    )
    _moved(noise, FALSE, weakest, "weakest correct\nanswer after")
    noise.set_title(
        f"ANF = {found['ANF']:.2f}: a false answer\nrises above a correct one", fontsize=9
    )
    return captioned(figure, MADE_UP)


def _moved(axes: Axes, answers: Answers, level: float, words: str) -> None:
    """One row an answer, an arrow from before to after, and the level it is compared with."""
    rows = np.arange(len(answers))[::-1]
    for row, (before, after) in zip(rows, answers.values(), strict=True):
        axes.plot(before, row, "o", mfc="none", color=PALETTE[0])
        axes.plot(after, row, "o", color=PALETTE[0])
        arrow = {"arrowstyle": "->", "color": PALETTE[0]}
        axes.annotate("", (after, row), (before, row), arrowprops=arrow)
    axes.axvline(level, color=PALETTE[3], linestyle="--", linewidth=1)
    axes.text(level, -0.75, f" {words}", color=PALETTE[3], fontsize=7, va="center")
    axes.set(xscale="log", xlim=(5e-4, 1.0), ylim=(-1.2, len(answers) - 0.6))
    axes.set_yticks(rows, list(answers))
    axes.grid(axis="y", visible=False)
