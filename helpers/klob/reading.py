"""KLoB's measures on small made-up numbers: a picture each, and numbers to follow by hand."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from helpers.klob.metrics import relative_similarity, similarity_matrix
from helpers.results.style import PALETTE, captioned, use_style

# Ten units, located or not: two wordings of one fact, and a sentence about another.
SETS = np.array(
    [
        [1, 1, 1, 1, 0, 0, 0, 0, 0, 0],
        [1, 1, 1, 0, 1, 0, 0, 0, 0, 0],
        [1, 0, 0, 0, 0, 0, 1, 1, 1, 0],
    ],
    dtype=bool,
)
SENTENCES = ("wording 1", "wording 2", "another fact")
DEVIATIONS = {"factual": 2.0, "random words": 1.5}  # of a sentence's scores over all units


def worked() -> dict[str, float]:
    """Sim_cand, Sim_all, RSim and RSD of the made-up sentences."""
    similarities = similarity_matrix(SETS)
    inside, everywhere = similarities[0, 1], similarities[:2, 2].mean()
    return {
        "Sim_cand": float(inside),
        "Sim_all": float(everywhere),
        "RSim": float(relative_similarity(inside, everywhere)),
        "RSD": 1 - DEVIATIONS["random words"] / DEVIATIONS["factual"],
    }


def pictures() -> Figure:
    """Relative similarity of located sets, and relative spread of scores, a panel each."""
    use_style()
    found = worked()
    figure, (sets, spread) = plt.subplots(1, 2, figsize=(7.2, 2.1), width_ratios=[1.5, 1])
    sets.imshow(SETS, cmap="Blues", vmin=0, vmax=1.4, aspect="auto")
    sets.set_yticks(range(len(SENTENCES)), SENTENCES)
    sets.set_xticks([])
    sets.set_xlabel("units of the model; dark: located")
    sets.grid(visible=False)
    sets.set_title(
        f"RSim = {found['RSim']:.2f}: wordings of one fact share\nmore units than facts do",
        fontsize=9,
    )
    spread.barh(list(DEVIATIONS), list(DEVIATIONS.values()), color=[PALETTE[0], "0.7"], height=0.6)
    spread.invert_yaxis()
    spread.set_xlabel("spread of scores over units")
    spread.grid(axis="y", visible=False)
    spread.set_title(f"RSD = {found['RSD']:.2f}: scores of facts\nstand out more", fontsize=9)
    return captioned(figure, "Made-up numbers")
