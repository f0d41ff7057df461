"""KLoB's figure by layer: where an edit works, and where locators see the fact."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from numpy.typing import NDArray

from helpers.klob.figures import LABELS
from helpers.results.statistics import bootstrap_interval, mean_interval
from helpers.results.style import told, use_style


def layer_curves(
    outcome: NDArray[np.floating], mass: Mapping[str, NDArray[np.floating]], *, caption: str
) -> Figure:
    """Where editing works, and where locators see the facts: means over facts, by layer.

    Args:
        outcome: gain of the edit in nats [facts, layers].
        mass: per locator its share of mass per layer [facts, layers].
        caption: model, facts, editor.
    """
    use_style()
    names = [name for name in LABELS if name in mass]
    height = 0.26 * len(names) + 3.0
    figure, (upper, lower) = plt.subplots(
        2, 1, figsize=(7.2, height), sharex=True, height_ratios=[1.6, 0.26 * len(names) + 0.4]
    )
    layers, mean = np.arange(outcome.shape[1]), outcome.mean(axis=0)
    band = [mean_interval(each) for each in outcome.T]
    upper.plot(layers, mean, color="black")
    upper.fill_between(layers, [b.low for b in band], [b.high for b in band], color="0.8")
    upper.set_ylabel("gain [nats]")
    upper.set_title(
        f"Edit of one layer: gain of the new answer at other wordings, n = {len(outcome)} facts",
        loc="left",
        fontsize=9,
    )
    shares = np.array([mass[name].mean(axis=0) for name in names])
    image = lower.imshow(shares, aspect="auto", cmap="cividis", norm=PowerNorm(0.5, vmin=0))
    peaks = shares.argmax(axis=1)
    lower.plot(peaks, range(len(names)), "o", color="white", markeredgecolor="black", ms=4)
    lower.set_yticks(range(len(names)), [LABELS[name] for name in names])
    lower.set_xlabel("layer")
    lower.set_title("Located mass, share of the fact's; ○ the highest", loc="left", fontsize=9)
    lower.grid(visible=False)
    figure.colorbar(image, ax=lower, label="share of mass", aspect=12)
    late = layers >= 0.8 * len(layers)
    less = bootstrap_interval(outcome[:, ~late].mean(axis=1) - outcome[:, late].mean(axis=1))
    finding = (
        f"{int(late[peaks].sum())} of {len(names)} locators point to late layers; "
        f"edits there gain {less.mean:.1f} [{less.low:.1f}, {less.high:.1f}] nats less"
    )
    return told(figure, finding, f"{caption}\nMeans over facts, 95 % band; late: the last fifth")
