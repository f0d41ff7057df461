"""The validation report of a packaged recalled graph: what each stage left, as tables and a figure."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from helpers.paths import PACKAGED
from helpers.results.style import told, use_style
from helpers.thinkedit.grow.wordings import read_wordings


def links(model: str) -> pd.DataFrame:
    """Links of each relation, most first, and of ``all``, a column per stage (``recalled.LINKS``)."""
    table = pd.read_csv(PACKAGED / "thinkedit" / f"recalled-{model}-links.csv")
    worded = read_wordings().relations
    reads = [worded[r].reads if r in worded else "" for r in table["relation"]]
    return table.assign(reads=reads)


def chains(model: str) -> pd.DataFrame:
    """Chains of each number of steps, ``found`` around the edits and ``kept``."""
    return pd.read_csv(PACKAGED / "thinkedit" / f"recalled-{model}-chains.csv")


def funnel(models: Sequence[str]) -> Figure:
    """Links that each stage left, and the chains that came of them by number of steps.

    Args:
        models: whose packaged graphs.
    """
    use_style()
    totals = {
        m: links(m).set_index("relation").loc["all"].drop("reads").astype(int) for m in models
    }
    kept = {model: chains(model).set_index("steps")["kept"] for model in models}
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(7.2, 3.4), gridspec_kw={"width_ratios": (3, 2)}
    )
    pd.DataFrame(totals).plot.barh(ax=left, width=0.8)
    left.invert_yaxis()
    left.set(xlabel="links", title="links left by each stage")
    left.margins(x=0.15)
    pd.DataFrame(kept).plot.bar(ax=right, width=0.8, legend=False, rot=0)
    right.set(xlabel="steps", ylabel="chains", title="chains")
    right.margins(y=0.1)
    for axes in (left, right):
        for bars in axes.containers:
            axes.bar_label(bars, padding=1, fontsize=7)
    counts = " and ".join(f"{counts.iloc[-1]} of {counts.iloc[0]}" for counts in totals.values())
    found = " and ".join(str(counts.sum()) for counts in kept.values())
    finding = f"{counts} proposed links lie on {found} chains"
    return told(figure, finding, f"ours: what {' and '.join(models)} recall, packaged")
