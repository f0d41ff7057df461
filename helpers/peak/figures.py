"""PEAK's figures from stored scores: probabilities of the answer lists, additivity per method."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from helpers.peak.metrics_table import probabilities_table, summarise
from helpers.results.figure import figure
from helpers.results.statistics import paired_means
from helpers.results.style import (
    HATCHES,
    MARKERS,
    PALETTE,
    WHISKERS,
    captioned,
    plain,
    share_below,
    told,
    use_style,
)

LISTS = {
    "correct": "correct answers $O$",
    "hard": "hard false $O_h$",
    "random": "random false $O_r$",
}


@figure("01_one_record", title="One record's answers before and after edits")
@figure("07_one_edit", title="One record's answers before and after the edit")
def answer_probabilities(answers: pd.DataFrame, *, title: str = "") -> Figure:
    """One record's answers before and after edits, as horizontal dots (PEAK, Figure 1 in numbers).

    Args:
        answers: columns answer, list (``target``, ``correct``, ``hard``, ``random``) and one column
            of probabilities per state of the model (``before``, ``ROME``, …).
        title: the fact and the edit, in words.
    """
    use_style()
    states = [column for column in answers.columns if column not in ("answer", "list")]
    figure, axes = plt.subplots(figsize=(6.6, 0.19 * len(answers) + 1.2))
    rows = np.arange(len(answers))[::-1]
    for index, state in enumerate(states):
        axes.scatter(
            answers[state],
            rows,
            marker="o^sDv"[index],
            color=PALETTE[index],
            edgecolor="black",
            linewidth=0.4,
            s=26,
            label=state,
            zorder=3,
        )
    _shade_lists(axes, answers["list"].tolist(), rows)
    axes.set_yticks(rows, [plain(answer) for answer in answers["answer"]])
    axes.set_xscale("log")
    axes.set_ylim(-0.7, len(answers) - 0.3)
    axes.set_xlabel("probability of the answer (geometric mean over its tokens, log scale)")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(states))
    return captioned(figure, title)


@figure("03_list_probabilities", title="Answer lists before and after")
def list_probabilities(scores: Mapping[str, pd.DataFrame], *, caption: str = "") -> Figure:
    """Mean probability of O, O_h and O_r before and after each method (PEAK, Figure 2).

    Args:
        scores: for each method the joined table of scores before and after.
    """
    use_style()
    rows, ahead = [], []
    for index, (method, table) in enumerate(scores.items()):
        probabilities = probabilities_table(table)
        lists = (probabilities[f"{name}_after"] for name in ("hard", "correct"))
        ahead.append(paired_means(*lists).difference.low > 0)
        summary = summarise(probabilities)
        moments = (["before"] if index == 0 else []) + ["after"]
        for moment in moments:
            state = "before" if moment == "before" else method
            for name, label in LISTS.items():
                rows.append(
                    (state, label, *summary.loc[f"{name}_{moment}", ["mean", "low", "high"]])
                )
    table = pd.DataFrame(rows, columns=["state", "list", "mean", "low", "high"])
    figure, axes = plt.subplots(figsize=(7.6, 3.4))
    grouped_points(axes, table, group="state", point="list")
    if len(scores) > 5:
        plt.setp(axes.get_xticklabels(), rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yscale("log")
    axes.set_ylabel("mean probability")
    figure.legend(loc="outside right center")
    finding = (
        f"After {sum(ahead)} of {len(ahead)} methods the correct answers are still more probable than "
        "the hard false ones"
    )
    tested = "the title counts paired differences whose interval is above zero"
    intervals = "95 % intervals (without a lower cap where they reach zero)"
    return told(figure, finding, f"{caption}\nMeans over records, {intervals}; {tested}")


@figure("03_additivity_bars", title="AFF and ANF of each method")
def additivity_bars(by_record: Mapping[str, pd.DataFrame], *, caption: str = "") -> Figure:
    """AFF and ANF, hard and random, of each method with 95 % intervals; lower is better."""
    use_style()
    rows = [
        (method, metric, *(100 * summarise(table[[metric]]).loc[metric, ["mean", "low", "high"]]))
        for method, table in by_record.items()
        for metric in ("AFF_hard", "ANF_hard", "AFF_random", "ANF_random")
    ]
    table = pd.DataFrame(rows, columns=["method", "metric", "mean", "low", "high"])
    table["metric"] = table["metric"].str.replace("_", " ")
    figure, axes = plt.subplots(figsize=(6.6, 3.0))
    grouped_bars(axes, table, group="metric", bar="method")
    axes.set_ylabel("lower is better [%]")
    axes.set_ylim(0, 105)
    axes.legend(ncols=2)
    forgotten = table[table["metric"] == "AFF hard"].set_index("method")["mean"].dropna()
    finding = "; ".join(
        f"{method} forgets {mean:.0f} %" for method, mean in forgotten.nlargest(3).items()
    )
    return told(figure, f"AFF, hard: {finding}", f"{caption}\nMeans over records, 95 % intervals")


@figure("03_additivity_distribution", title="AFF over records")
def additivity_distribution(by_record: Mapping[str, pd.DataFrame], *, caption: str = "") -> Figure:
    """Distribution of AFF (hard) over records: a panel per editor, a curve alone and one with APP."""
    use_style()
    editors = list(dict.fromkeys(method.removesuffix("+APP") for method in by_record))
    columns = min(4, len(editors))
    rows = -(-len(editors) // columns)
    size = (max(6.6, 1.9 * columns), 1.7 * rows + 1.3)
    figure, panels = plt.subplots(
        rows, columns, figsize=size, sharex=True, sharey=True, squeeze=False
    )
    looks = {"": (PALETTE[0], "-", "plain"), "+APP": (PALETTE[1], "--", "+APP")}
    for place, (axes, editor) in enumerate(zip(panels.flat, editors, strict=False)):
        for suffix, (colour, line, label) in looks.items():
            if editor + suffix in by_record:
                values = 100 * by_record[editor + suffix]["AFF_hard"].dropna()
                share_below(axes, values, color=colour, linestyle=line, label=label)
        axes.set_title(f"{editor} (n={len(values)})")
        lowest = place + columns >= len(editors)
        axes.set(xlabel="AFF (hard) [%]" if lowest else "", ylabel="")
        axes.tick_params(labelbottom=lowest)
    for axes in panels.flat[len(editors) :]:
        axes.axis("off")
    figure.supylabel("share of records at or below", fontsize=9)
    handles = [Line2D([], [], color=c, ls=style, label=n) for c, style, n in looks.values()]
    figure.legend(handles=handles, loc="outside right center")
    return told(figure, _mostly_forgotten(by_record), caption)


def _mostly_forgotten(by_record: Mapping[str, pd.DataFrame]) -> str:
    """Which editor forgets most of the list most often, and how often with APP."""
    shares = {
        method: 100 * (table["AFF_hard"].dropna() > 0.5).mean()
        for method, table in by_record.items()
    }
    paired = [method for method in shares if f"{method}+APP" in shares] or list(shares)
    worst = max(paired, key=lambda method: shares[method])
    words = f"AFF is above 50 % in {shares[worst]:.0f} % of the records with {worst}"
    careful = shares.get(f"{worst}+APP")
    return words if careful is None else f"{words}, in {careful:.0f} % with {worst}+APP"


def _shade_lists(axes: plt.Axes, lists: list[str], rows: np.ndarray) -> None:
    """A faint band and a label at the right for each run of one list."""
    start = 0
    for index in range(1, len(lists) + 1):
        if index == len(lists) or lists[index] != lists[start]:
            top, bottom = rows[start] + 0.5, rows[index - 1] - 0.5
            shade = "0.93" if lists[start] in ("correct", "random") else "1.0"
            axes.axhspan(bottom, top, color=shade, zorder=0)
            label = {"target": "appended", **LISTS}[lists[start]]
            axes.text(
                1.01, (top + bottom) / 2, label, transform=axes.get_yaxis_transform(), va="center"
            )
            start = index


def grouped_points(axes: plt.Axes, table: pd.DataFrame, *, group: str, point: str) -> None:
    """Markers with intervals, one cluster per ``group``, for a logarithmic axis.

    An interval that goes down to zero, or below a hundredth of its mean, has no cap there.
    """
    groups, points = table[group].unique(), table[point].unique()
    for index, name in enumerate(points):
        part = table[table[point] == name].set_index(group).reindex(groups)
        low = part["low"].clip(lower=part["mean"] / 100)
        _, (lower_caps, _), _ = axes.errorbar(
            np.arange(len(groups)) + 0.18 * (index - (len(points) - 1) / 2),
            part["mean"],
            yerr=[(part["mean"] - low).fillna(0), (part["high"] - part["mean"]).fillna(0)],
            fmt=MARKERS[index],
            color=PALETTE[index],
            markeredgecolor="black",
            markeredgewidth=0.4,
            elinewidth=0.9,
            capsize=2,
            label=name,
        )
        lower_caps.set_ydata(np.where(low > part["low"], np.nan, low))
    axes.set_xticks(np.arange(len(groups)), groups)
    axes.set_xlim(-0.5, len(groups) - 0.5)
    axes.grid(axis="x", visible=False)


def grouped_bars(axes: plt.Axes, table: pd.DataFrame, *, group: str, bar: str) -> None:
    """Bars of percentages with intervals: one cluster per ``group``, one hatched bar per ``bar``."""
    groups, bars = table[group].unique(), table[bar].unique()
    width = 0.8 / len(bars)
    for index, name in enumerate(bars):
        part = table[table[bar] == name].set_index(group).reindex(groups)
        places = np.arange(len(groups)) + (index - (len(bars) - 1) / 2) * width
        below = (part["mean"] - part["low"].clip(lower=0)).fillna(0)
        above = (part["high"].clip(upper=100) - part["mean"]).fillna(0)
        axes.bar(
            places,
            part["mean"],
            width,
            yerr=[below, above],
            label=name,
            color=PALETTE[index % len(PALETTE)],
            hatch=HATCHES[index % len(HATCHES)],
            edgecolor="black",
            linewidth=0.5,
            error_kw=WHISKERS,
        )
    axes.set_xticks(np.arange(len(groups)), groups)
    axes.grid(axis="x", visible=False)
