"""The validation report of a packaged recalled graph: what each stage left, as tables and a figure."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from helpers.paths import PACKAGED
from helpers.results.style import told, use_style
from helpers.thinkedit.wordings import read_wordings


def links(model: str) -> pd.DataFrame:
    """Links of each relation, most first, and of ``all``, a column per stage (``recalled.LINKS``)."""
    table = pd.read_csv(PACKAGED / "thinkedit" / f"recalled-{model}-links.csv")
    worded = read_wordings().relations
    reads = [worded[r].reads if r in worded else "" for r in table["relation"]]
    return table.assign(reads=reads)


def chains(model: str) -> pd.DataFrame:
    """Chains of each number of steps, ``found`` around the edits and ``kept``."""
    return pd.read_csv(PACKAGED / "thinkedit" / f"recalled-{model}-chains.csv")


def funnel(model: str) -> Figure:
    """Links that each stage left, and the chains that came of them by number of steps.

    Args:
        model: whose packaged graph.
    """
    use_style()
    total = links(model).set_index("relation").loc["all"].drop("reads").astype(int)
    kept = chains(model).set_index("steps")["kept"]
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(7.2, 2.6), gridspec_kw={"width_ratios": (3, 2)}
    )
    bars = left.barh(total.index, total.to_numpy(), color="C0")
    left.bar_label(bars, padding=2)
    left.invert_yaxis()
    left.set(xlabel="links", xlim=(0, 1.15 * total.max()), title="links left by each stage")
    bars = right.bar(kept.index.astype(str), kept.to_numpy(), color="C0")
    right.bar_label(bars, padding=1)
    right.set(xlabel="steps", ylabel="chains", ylim=(0, 1.15 * kept.max()), title="chains")
    finding = (
        f"{total.iloc[-1]} of {total.iloc[0]} proposed links lie on one of {kept.sum()} chains"
    )
    return told(figure, finding, f"ours: what {model} recalls, packaged")
