"""ThinkEdit's figures, each drawn from the stored runs of all models together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from helpers.editing.editors import method_label
from helpers.results import style
from helpers.results.archive import Run
from helpers.results.figure import figure
from helpers.results.text import INCONCLUSIVE
from helpers.thinkedit import metrics, tables
from helpers.thinkedit.tables import caption_of, evaluate, is_recalled

MAIN = "smollm2-135m"
_BARS = "; bars: 95 % intervals over edits"
_STEPS = ["1", "2", "3", "4", "5"]
_OUTSIDE: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}


def _made(run: Run, mode: str) -> bool:
    """Whether it has exact scores of edits in this mode."""
    return any(part.startswith("exact: ") and part.endswith(f", {mode}") for part in run.tables)


_stored = partial(figure, of="thinkedit", needs=("exact", "chains"), together=True)
_exact = partial(
    _stored, main=MAIN, when=lambda run: not is_recalled(run) and _made(run, "sequential")
)


def _plain(runs: Sequence[Run]) -> pd.DataFrame:
    """Exact metrics of the methods without APP."""
    rule = metrics.DEFAULT if all(map(is_recalled, runs)) else metrics.BY_RANK
    return tables.split_app(evaluate(tuple(runs), rule=rule))[0]


@_exact("06_ifr_by_length", title="IFR by chain length")
def lengths(runs: Sequence[Run], *, mode: str = "sequential") -> Figure:
    """IFR of chains of one to five steps, a panel per model, the paper's last (its Figure 5)."""
    style.use_style()
    ours, paper = tables.length_table(_plain(runs), mode=mode), tables.paper_lengths()
    paper["model"] += "\n(the paper)"
    both = pd.concat([ours, paper])
    models = both["model"].unique()
    size = (2.7 * len(models), 3.4)
    drawn, panels = plt.subplots(1, len(models), figsize=size, sharey=True)
    for axes, model in zip(panels, models, strict=True):
        mine = both[both["model"] == model]
        for place, (_, row) in enumerate(mine.iterrows()):
            aside = np.arange(len(_STEPS)) + 0.1 * (place - (len(mine) - 1) / 2)
            look = style.method_line(row["method"]) | {"linewidth": 0.9}
            look |= {"elinewidth": 0.8, "capsize": 2}
            ends = np.hstack([_sides(row, step) for step in _STEPS])
            axes.errorbar(aside, row[_STEPS].to_numpy(float), yerr=ends, **look)
        counts = mine["chains"].fillna("").iloc[0].split("/")[1:] or [""] * len(_STEPS)
        names = [f"{step}\n{n}".strip() for step, n in zip(_STEPS, counts, strict=True)]
        axes.set_xticks(range(len(_STEPS)), names)
        axes.set_title(model, fontsize=9)
        axes.set_xlabel("steps of the chain" + "\nn of deducible chains" * any(counts))
        axes.set_yscale("symlog", linthresh=1, linscale=2)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1, 10, 100], ["0", "", "0.5", "", "1", "10", "100"])
        axes.set_ylim(-0.05, 150)
        axes.axhline(1, color="0.4", linewidth=0.8)
    panels[0].set_ylabel("IFR (lower: less deducible)")
    panels[-1].legend(*panels[0].get_legend_handles_labels(), **_OUTSIDE)
    found = [n.split("/") for n in ours.drop_duplicates("model")["chains"]]
    every, long = (sum(int(n) for row in found for n in row[first:]) for first in (1, 3))
    finding = f"{long} of our {every} deducible chains have three steps or more"
    caption = caption_of(runs, f"exact, {mode}; bars: 95 % intervals, bootstrap over edits")
    note = "the paper's Table 10 has neither intervals nor numbers of chains"
    return style.told(drawn, finding, f"{caption}\n{note}")


@_stored(
    "06_definition_2",
    title="Deep edits: no longer chain is left (Definition 2)",
    main=f"{MAIN}_recalled-{MAIN}",
    when=lambda run: is_recalled(run) and _made(run, "independent"),
)
def definition_2(runs: Sequence[Run], *, mode: str = "independent") -> Figure:
    """Share of edits after which no chain of two or more steps is fully known."""
    table, deep = tables.deep_table(_plain(runs), mode=mode), tables.DEEP
    fewest = table.loc[table.groupby("model")[deep].idxmin(), ["method", "model", deep]]
    named = [
        f"{method_label(method)} on {model} ({share:.0%})"
        for method, model, share in fewest.itertuples(index=False)
    ]
    counts = (f"{model} {n}" for model, n in table.groupby("model")["edits"].max().items())
    caption = (
        f"{caption_of(runs, f'exact, {mode}')}\nDeep: no chain of two or more steps is fully known"
        f" after the edit; edits with such a chain before: {', '.join(counts)}"
    )
    finding = f"Deep edits are fewest with {' and '.join(named)}"
    return _bars(table, deep, "share of deep edits", finding, caption)


@_exact("06_ckp", title="CKP by method")
def preservation(runs: Sequence[Run], *, mode: str = "sequential") -> Figure:
    """CKP of each method with its interval (the paper's Figure 6)."""
    table = tables.technique_table(_plain(runs), mode=mode)
    apart = (table["CKP low"] > 1) | (table["CKP high"] < 1)
    finding = f"{apart.sum()} of {len(apart)} intervals exclude 1, a context unchanged"
    return _bars(table, "CKP", "CKP (1: context kept)", finding, caption_of(runs, f"exact, {mode}"))


def _bars(table: pd.DataFrame, measure: str, label: str, finding: str, caption: str) -> Figure:
    style.use_style()
    wide = table.pivot(index="model", columns="method")
    mean, low, high = (wide[name] for name in (measure, f"{measure} low", f"{measure} high"))
    methods = list(table["method"].drop_duplicates())
    drawn, axes = plt.subplots(figsize=(1.6 + 2.2 * len(wide), 3.0))
    width = 0.8 / len(methods)
    places = np.arange(len(wide))
    for index, method in enumerate(methods):
        axes.bar(
            places + index * width,
            mean[method],
            width,
            label=method_label(method),
            color=style.method_colour(method),
            hatch=style.method_hatch(method),
            edgecolor="white",
            yerr=[mean[method] - low[method], high[method] - mean[method]],
            error_kw=style.WHISKERS,
        )
    axes.set_xticks(places + 0.4 - width / 2, wide.index)
    axes.axhline(1, color="0.4", linewidth=0.8)
    axes.set_ylabel(label)
    axes.legend(ncols=1, **_OUTSIDE)
    return style.told(drawn, finding, f"{caption}{_BARS}")


@_exact("06_ifr_against_ckp", title="IFR against CKP")
def trade_off(runs: Sequence[Run], *, mode: str = "sequential") -> Figure:
    """What is left of the old fact and of the context (the paper's Figure 7); the ideal is the upper left."""
    style.use_style()
    found = _plain(runs)
    table = tables.technique_table(found, mode=mode)
    models = table["model"].unique()
    size = (2.9 * len(models) + 1.8, 3.1)
    grid = plt.subplots(1, len(models), figsize=size, sharex=True, sharey=True, squeeze=False)
    drawn, (panels,) = grid
    marks: dict[str, Any] = {}  # not every method is in every panel
    for axes, model in zip(panels, models, strict=True):
        rows = table[table["model"] == model].set_index("method")
        for method, row in rows.iterrows():
            axes.plot(row["IFR"], row["CKP"], **style.method_line(str(method)) | {"linestyle": ""})
            ends = {"xerr": _sides(row, "IFR"), "yerr": _sides(row, "CKP")}
            thin = {"linewidth": 0.8, "alpha": 0.6, "capsize": 2, "zorder": 1}
            colour = style.method_colour(str(method))
            axes.errorbar(row["IFR"], row["CKP"], fmt="none", color=colour, **ends, **thin)
        marks |= {str(line.get_label()): line for line in axes.get_legend_handles_labels()[0]}
        counts = f"{rows['chains'].max()} chains of {rows['edits'].max()} edits"
        axes.set_title(f"{style.plain(model)}\nIFR over {counts}", fontsize=9)
        axes.set_xlabel("IFR (lower is better)")
    # A tenth of the scale at least: a hundredth of CKP should not look like a cliff.
    kept = table[["CKP", "CKP low", "CKP high"]].to_numpy(float)
    low, high = min(0.9, np.nanmin(kept)), max(1.0, np.nanmax(kept))
    right = np.nanmax(table[["IFR", "IFR high"]].to_numpy(float))
    panels[0].set(
        ylabel="CKP (higher is better)",
        ylim=(low - 0.06 * (high - low), high + 0.06 * (high - low)),
        xlim=(-0.03 * right, 1.05 * right),  # a mark at zero is whole
    )
    panels[-1].legend(marks.values(), marks, **_OUTSIDE)
    tests = tables.difference_table(found, found, mode=mode, than="memit")
    left = tests[tests["Holm"] != INCONCLUSIVE]
    finding = f"Differences from MEMIT left after correction: {len(left)} of {len(tests)}"
    for _, row in left.iterrows():
        finding += f"; {method_label(row['method'])} has {row['Holm']} {row['measure']}"
        finding += f" ({row['model']})"
    return style.told(drawn, finding, f"{caption_of(runs, f'exact, {mode}')}{_BARS}")


def _sides(row: pd.Series, name: str) -> list[list[float]]:
    """What lies below and above a value, as matplotlib wants it; nothing where there is no interval."""
    ends = row[name] - row[f"{name} low"], row[f"{name} high"] - row[name]
    return [[max(0.0, float(end)) if end == end else 0.0] for end in ends]
