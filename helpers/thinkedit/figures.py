"""ThinkEdit's figures from result tables: IFR by length, CKP, their trade-off, active chains."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from helpers.editing.editors import method_label
from helpers.results.style import (
    WHISKERS,
    method_colour,
    method_hatch,
    method_line,
    method_mark,
    method_place,
    plain,
    told,
    use_style,
)

THE_PAPER = "the paper's numbers (Table 10), not ours"
_BARS = "; bars: 95 % intervals over edits"
_STEPS = ["1", "2", "3", "4", "5"]


def recovery_by_length(lengths: pd.DataFrame, *, finding: str = "", caption: str = "") -> Figure:
    """IFR of chains of 1 to 5 steps, one panel per model (the paper's Figure 5).

    The axis is the same for the paper's numbers and for ours: even up to 1, above it logarithmic.

    Args:
        lengths: table of ``technique_tables.length_table`` (or the paper's in that form); where it has
            ``1 low``, ``1 high``, … they are drawn as intervals, and ``chains`` stands under each length.
        finding: what the figure shows.
        caption: what the numbers are of, here and below in small print.
    """
    use_style()
    models = lengths["model"].unique()
    figure, panels = plt.subplots(
        1, len(models), figsize=(3.6 * len(models), 3.4), sharey=True, squeeze=False
    )
    for axes, model in zip(panels[0], models, strict=True):
        mine = lengths[lengths["model"] == model]
        for place, (_, row) in enumerate(mine.iterrows()):
            aside = np.arange(len(_STEPS)) + 0.1 * (place - (len(mine) - 1) / 2)
            look = method_line(row["method"]) | {"elinewidth": 0.8, "capsize": 2, "linewidth": 0.9}
            values = row[_STEPS].to_numpy(float)
            axes.errorbar(aside, values, yerr=_ends_of(row, values), **look)
        counts = mine["chains"].iloc[0].split("/")[1:] if "chains" in mine else [""] * len(_STEPS)
        names = [f"{step}\n{n}" if n else step for step, n in zip(_STEPS, counts, strict=True)]
        axes.set_xticks(range(len(_STEPS)), names)
        axes.set(title=model, xlabel="steps of the chain" + "\nn of deducible chains" * any(counts))
        axes.set_yscale("symlog", linthresh=1, linscale=2)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1, 10, 100], ["0", "", "0.5", "", "1", "10", "100"])
        axes.set_ylim(-0.05, 150)
        axes.axhline(1, color="0.4", linewidth=0.8)
    panels[0, 0].set_ylabel("IFR (lower: less deducible)")
    panels[0, -1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return told(figure, finding, caption)


def method_bars(
    table: pd.DataFrame, measure: str, *, label: str, finding: str, caption: str = ""
) -> Figure:
    """A measure of each method with its 95 % interval, grouped by model (the paper's Figure 6).

    Args:
        table: has columns model, method, and the measure with its ``low`` and ``high``.
        measure: such as "CKP".
        label: of the axis.
        finding: what the figure shows.
        caption: what the numbers are of.
    """
    use_style()
    wide, low, high = (
        table.pivot(index="model", columns="method", values=name)
        for name in (measure, f"{measure} low", f"{measure} high")
    )
    methods = list(table["method"].drop_duplicates())
    figure, axes = plt.subplots(figsize=(1.6 + 2.2 * len(wide), 3.0))
    width = 0.8 / len(methods)
    places = np.arange(len(wide))
    for index, method in enumerate(methods):
        axes.bar(
            places + index * width,
            wide[method],
            width,
            label=method_label(method),
            color=method_colour(method),
            hatch=method_hatch(method),
            edgecolor="white",
            yerr=[wide[method] - low[method], high[method] - wide[method]],
            error_kw=WHISKERS,
        )
    axes.set_xticks(places + 0.4 - width / 2, wide.index)
    axes.axhline(1, color="0.4", linewidth=0.8)
    axes.set_ylabel(label)
    axes.legend(ncols=1, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return told(figure, finding, f"{caption}{_BARS}")


def recovery_against_preservation(
    techniques: pd.DataFrame, *, finding: str = "", caption: str = ""
) -> Figure:
    """IFR against CKP, one panel per model (the paper's Figure 7); the ideal is the upper left.

    Args:
        techniques: table of ``technique_tables.technique_table``; bars are 95 % intervals over edits.
        finding: stands over the panels.
        caption: what the numbers are of.
    """
    use_style()
    models = techniques["model"].unique()
    figure, panels = plt.subplots(
        1,
        len(models),
        figsize=(2.9 * len(models) + 1.8, 3.1),
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    for axes, model in zip(panels[0], models, strict=True):
        rows = techniques[techniques["model"] == model].set_index("method")
        for method, row in rows.iterrows():
            large = method_line(str(method))["markersize"]
            axes.plot(row["IFR"], row["CKP"], **{**method_mark(str(method)), "markersize": large})
            axes.errorbar(
                row["IFR"],
                row["CKP"],
                xerr=_sides(row, "IFR"),
                yerr=_sides(row, "CKP"),
                fmt="none",
                color=method_colour(str(method)),
                linewidth=0.8,
                alpha=0.6,
                capsize=2,
                zorder=1,
            )
        counts = f"{rows['chains'].max()} chains of {rows['edits'].max()} edits"
        axes.set_title(f"{plain(model)}\nIFR over {counts}", fontsize=9)
        axes.set_xlabel("IFR (lower is better)")
    # A tenth of the scale at least: a hundredth of CKP should not look like a cliff.
    low = min(0.9, techniques["CKP"].min(), techniques["CKP low"].min())
    high = max(1.0, techniques["CKP"].max(), techniques["CKP high"].max())
    right = max(techniques["IFR"].max(), techniques["IFR high"].max())
    panels[0, 0].set(
        ylabel="CKP (higher is better)",
        ylim=(low - 0.06 * (high - low), high + 0.06 * (high - low)),
        xlim=(-0.03 * right, 1.05 * right),  # a mark at zero is whole
    )
    marks = {
        str(line.get_label()): line
        for axes in panels[0]
        for line in axes.get_legend_handles_labels()[0]
    }  # not every method is in every panel
    panels[0, -1].legend(marks.values(), marks, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return told(figure, finding, f"{caption}{_BARS}")


def chain_counts_bars(counts: pd.DataFrame, *, caption: str = "") -> Figure:
    """Chains by length: how many were deducible before editing, and are active after each method.

    All chains, many more, stand as a number under each length, so that the axis can be even.

    Args:
        counts: table of ``report_tables.chain_counts``.
    """
    use_style()
    models = counts["model"].unique()
    figure, panels = plt.subplots(
        1, len(models), figsize=(3.8 * len(models), 3.2), sharey=True, squeeze=False
    )
    totals = []
    for axes, model in zip(panels[0], models, strict=True):
        mine = counts[counts["model"] == model]
        first = mine.drop_duplicates("length")
        totals.append((first["deducible"].sum(), first["chains"].sum()))
        axes.bar(first["length"], first["deducible"], color="0.85", label="deducible before")
        methods = list(mine["method"].drop_duplicates())
        for place, method in enumerate(methods):
            part = mine[mine["method"] == method]
            # Side by side, since methods often leave the same number.
            aside = 0.7 * ((place + 0.5) / len(methods) - 0.5)
            axes.plot(part["length"] + aside, part["active"], **method_mark(str(method)))
        names = [f"{row.length}\nof {row.chains}" for row in first.itertuples()]
        axes.set_xticks(first["length"], names)
        axes.set(title=model, xlabel="steps of the chain, of all chains")
        axes.yaxis.get_major_locator().set_params(integer=True)
    panels[0, 0].set_ylim(bottom=-0.04 * max(1, counts["deducible"].max(), counts["active"].max()))
    panels[0, 0].set_ylabel("chains")
    panels[0, -1].legend(
        title="active after the edit,\nby method", loc="upper left", bbox_to_anchor=(1.0, 1.0)
    )
    known = " and ".join(str(deducible) for deducible, _ in totals)
    finding = (
        f"{known} of {max(total for _, total in totals)} chains were deducible before any edit"
    )
    return told(figure, finding, caption)


def sequence_lines(leads: pd.DataFrame, *, finding: str = "", caption: str = "") -> Figure:
    """How the edits of a sequence fare: the new object's lead right after each edit and at the end.

    One row of panels per model, one panel per method.

    Args:
        leads: table of ``side_tables.sequence_leads``.
    """
    use_style()
    methods = sorted(leads["method"].unique(), key=method_place)
    models = sorted(leads["model"].unique())
    size = (1.45 * len(methods) + 1.0, 0.6 + 2.0 * len(models))
    figure, panels = plt.subplots(
        len(models), len(methods), figsize=size, sharex=True, sharey=True, squeeze=False
    )
    for row, model in zip(panels, models, strict=True):
        for axes, method in zip(row, methods, strict=True):
            mine = leads[(leads["method"] == method) & (leads["model"] == model)]
            colour = method_colour(method)
            axes.vlines(
                mine["place"], mine["right after"], mine["at the end"], color="0.8", zorder=1
            )
            axes.plot(mine["place"], mine["right after"], "o", color=colour, ms=3.5, mfc="none")
            axes.plot(mine["place"], mine["at the end"], "o", color=colour, ms=3.5)
            axes.axhline(0, color="0.4", linewidth=0.8)
        row[0].set_ylabel(f"{plain(model)}\nlead of the new object\n[nats per token]")
    for axes, method in zip(panels[0], methods, strict=True):
        axes.set_title(method_label(method))
    for axes in panels[-1]:
        axes.set_xlabel("place in the sequence")
    return told(figure, finding, f"{caption}\n○ right after the edit, ● at the end")


def _sides(row: pd.Series, name: str) -> list[list[float]]:
    """What lies below and above a value, as matplotlib wants it; nothing where there is no interval."""
    ends = row[name] - row[f"{name} low"], row[f"{name} high"] - row[name]
    return [[max(0.0, float(end)) if end == end else 0.0] for end in ends]


def _ends_of(row: pd.Series, values: np.ndarray) -> np.ndarray | None:
    """What lies below and above each length's value; nothing where the table has no intervals."""
    if f"{_STEPS[0]} low" not in row.index:
        return None
    low, high = (
        row[[f"{step} {end}" for step in _STEPS]].to_numpy(float) for end in ("low", "high")
    )
    return np.nan_to_num(np.clip([values - low, high - values], 0, None))
