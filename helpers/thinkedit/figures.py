"""ThinkEdit's figures, each drawn from the stored runs of all models together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame as Table

from helpers.editing.editors import method_label
from helpers.paths import PACKAGED
from helpers.results import style
from helpers.results.archive import PACKAGED_WORDS, Run, model_words
from helpers.results.figure import figure
from helpers.thinkedit import metrics, tables
from helpers.thinkedit.knowgic import LAYOUTS
from helpers.thinkedit.tables import caption_of, evaluate, is_recalled, model_of

_BARS = "; bars: 95 % intervals over edits"
_RATIOS = (0.5, 1, 2, 4)
_STEPS = ["1", "2", "3", "4", "5"]


def _mode(run: Run) -> str:
    """KnowGIC's edits are drawn as the paper makes them, if they were made so; others each alone."""
    sequences = not is_recalled(run) and any(part.endswith(", sequential") for part in run.tables)
    return "sequential" if sequences else "independent"


def _alone(run: Run) -> bool:
    return any(p.startswith("exact: ") and p.endswith(", independent") for p in run.tables)


_stored = partial(figure, of="thinkedit", needs=("exact", "chains"), together=True)
_exact = partial(_stored, main="smollm2-135m", when=lambda run: _mode(run) == "sequential")
_recalled = partial(_stored, when=lambda run: is_recalled(run) and _alone(run))


def _size(model: str) -> int:
    """Packaged models by size, others after them."""
    return [*PACKAGED_WORDS, model].index(model)


def _plain(runs: Sequence[Run]) -> Table:
    """Exact metrics of the methods without APP."""
    rule = metrics.DEFAULT if all(map(is_recalled, runs)) else metrics.BY_RANK
    return tables.split_app(evaluate(tuple(runs), rule=rule))[0]


def _by_graph(
    runs: Sequence[Run], table: Callable[..., Table], paper: Table, n: str, mode: str = ""
) -> dict[str, Table]:
    """A table of each run's model and graphs, own graphs first, then those of each of the paper's models.
    ``n`` words what is behind it.
    """
    found = {}
    for run in sorted(runs, key=lambda r: (not is_recalled(r), _size(r.about.source["model"]))):
        made = mode or _mode(run)
        part = table(_plain([run]), mode=made)
        edits = "KnowGIC" if run.about.source["layout"] in LAYOUTS else "other edits"
        graph = "own graph" if is_recalled(run) else edits + ", alone" * (made == "independent")
        behind = n.format(*str(part["chains"].max()).split("/"), **part.iloc[0])
        found[f"{model_of(run)}\n{graph}\n{behind}".strip()] = part
    return found | {f"{model}\nthe paper": part for model, part in paper.groupby("model")}


def _counted(panels: Mapping[str, Table], true: Callable[[Table], pd.Series]) -> str:
    """Of how many methods it is true, by the kind of graph."""
    found: dict[str, list[bool]] = {}
    for title, part in panels.items():
        found.setdefault(title.split("\n")[1], []).extend(true(part))
    return ", ".join(f"{sum(each)} of {len(each)} ({kind})" for kind, each in found.items())


def _marks(table: Table, name: str) -> Table:
    """A measure as ``style.marked`` takes it; without an interval where the table has none."""
    ends = {name: "mean", f"{name} low": "low", f"{name} high": "high"}
    return table.reindex(columns=list(ends)).rename(columns=ends)


@_stored("06_direct_against_chains", when=_alone)
def direct_against_chains(runs: Sequence[Run]) -> Figure:
    """IFR of the direct question and of longer chains (Figures 2 and 4, for all edits), each alone."""
    table, n = tables.length_table, "n = {1} and {6} chains"
    panels = _by_graph(runs, table, tables.paper_lengths(), n, "independent")
    more = _counted(panels, lambda part: part[tables.LONGER] > part["1"])
    names = {"direct question": "1", "chains of two\nor more steps": tables.LONGER}
    series = {t: {name: (x, part) for name, x in names.items()} for t, part in panels.items()}
    finding = f"More of the old fact is left along chains than at the direct question: {more}"
    note = "IFR, log scale; counted: means; the paper gives no intervals"
    caption = f"{caption_of(runs, 'exact')}{_BARS}\n{note}"
    return style.told(_dots(series, xscale="log", xlim=(3e-5, 100)), finding, caption)


@_recalled("06_ifr_by_length")
def lengths(runs: Sequence[Run]) -> Figure:
    """IFR of chains of one to five steps on one scale, ours and the paper's (its Figure 5)."""
    panels = _by_graph(runs, tables.length_table, tables.paper_lengths(), "")
    drawn, axes = _grid(len(panels))
    for panel, (title, part) in zip(axes, panels.items(), strict=True):
        for place in range(len(part)):
            marks = pd.concat(_marks(part.iloc[[place]], step) for step in _STEPS)
            look = style.method_line(part["method"].iloc[place]) | {"markersize": 4}
            aside = 0.1 * (place - (len(part) - 1) / 2)
            style.marked(panel, np.arange(5) + aside, marks, **look)
        counts = part["chains"].iloc[0].split("/")[1:6] if "chains" in part else []
        for place, n in enumerate(counts):
            panel.text(place, 0.97, n, ha="center", va="top", fontsize=7)
        panel.set_xticks(range(5), _STEPS)
        panel.set_title(title, fontsize=8)
        panel.set_yscale("function", functions=(lambda v: np.maximum(v, 0) ** 0.5, np.square))
        panel.set(ylim=(0, 1), yticks=(0, 0.01, 0.1, 0.25, 0.5, 1))
    drawn.supylabel("IFR (square-root scale)", fontsize=9)
    _legend(drawn, axes)
    peaks = _counted(panels, lambda p: p[_STEPS].astype(float).idxmax(axis=1).isin(["2", "3"]))
    finding = f"IFR is highest along chains of two or three steps: {peaks}"
    note = "by means; above: n of deducible chains; the paper gives none"
    caption = f"{caption_of(runs, 'exact')}{_BARS}\n{note}"
    return style.told(drawn, finding, caption)


@_recalled("06_what_is_left")
def what_is_left(runs: Sequence[Run], *, mode: str = "independent") -> Figure:
    """Share of deep edits (Definition 2), and what is left of each kind of fact."""
    table = tables.pooled_table(_plain(runs), (tables.DEEP, *tables.KINDS), mode=mode)
    less = table[f"{metrics.OWN} high"] < table["CKP low"]
    apart = less.groupby(table["method"], sort=False)
    methods = ", ".join(method_label(str(m)) for m, each in apart if each.all()) or "No method"
    finding = f"{methods}: less is left of the subject's other facts than of other subjects' facts"
    titles = {
        "deep edits: share\nthat leave no chain": metrics.DEEP,
        "left of the\nedited fact": metrics.DIRECT,
        "left of other facts\nabout its subject": metrics.OWN,
        "left of facts about\nother subjects (CKP)": "CKP",
    }
    models = {m: table.query("model == @m") for m in sorted({*table["model"]}, key=_size)}
    panels = {t: {m: (name, part) for m, part in models.items()} for t, name in titles.items()}
    counts = "; ".join(f"{model} {part['terms'].iloc[0]}" for model, part in models.items())
    note = f"n, by panel: {counts}; title: intervals of the last two panels are apart"
    caption = f"{caption_of(runs, f'exact, {mode}')}{_BARS}\n{note}"
    return style.told(_dots(panels, 4, xlim=(-0.04, 1.04), xticks=(0, 0.5, 1)), finding, caption)


@_exact("06_ckp")
def preservation(runs: Sequence[Run], *, mode: str = "sequential") -> Figure:
    """CKP of each method with its interval, ours and the paper's (its Figure 6)."""
    paper, n = tables.paper_techniques(), "n = {facts} facts"
    panels = _by_graph(runs, tables.technique_table, paper, n)
    ours = pd.concat(panels).dropna(subset="CKP low")
    apart = (ours["CKP low"] > 1) | (ours["CKP high"] < 1)
    changing = f"{apart.sum()} methods" if apart.any() else "No method"
    finding = f"{changing} measurably changed CKP on KnowGIC ({len(ours)} intervals)"
    note = "CKP, log scale; the paper's Tables 5 and 6 have no intervals"
    caption = f"{caption_of(runs, f'exact, {mode}')}{_BARS}\n{note}"
    series = {title: {"CKP": ("CKP", part)} for title, part in panels.items()}
    drawn = _dots(series, xscale="log", xlim=(0.3, 8), xticks=_RATIOS)
    for panel in drawn.axes:
        panel.axvline(1, color="0.4", linewidth=0.9, zorder=1)
        panel.set_xticklabels(map("{:g}".format, _RATIOS))
        panel.minorticks_off()
    return style.told(drawn, finding, caption)


@_exact("06_ifr_against_ckp")
def trade_off(runs: Sequence[Run], *, mode: str = "sequential") -> Figure:
    """IFR and CKP, ours and the paper's own points (its Figure 7); the ideal is the upper left."""
    paper, n = tables.paper_techniques(), "{chains} chains of {edits} edits"
    panels = _by_graph(runs, tables.technique_table, paper, n)
    drawn, axes = _grid(len(panels))
    for panel, (title, part) in zip(axes, panels.items(), strict=True):
        for method, row in part.groupby("method", sort=False):
            for name, other, across in (("IFR", "CKP", True), ("CKP", "IFR", False)):
                look = style.method_line(str(method)) | {"linestyle": "", "markersize": 5}
                style.marked(panel, row[other], _marks(row, name), across=across, **look)
        panel.set_title(title, fontsize=8)
        panel.set(xscale="log", yscale="log", xlim=(0.001, 40), ylim=(0.3, 8), xlabel="IFR")
        panel.set_xticks([0.01, 0.1, 1, 10], ["0.01", "0.1", "1", "10"])
        panel.set_yticks(_RATIOS, map("{:g}".format, _RATIOS))
        panel.minorticks_off()
    drawn.supylabel("CKP (1: context unchanged)", fontsize=9)
    _legend(drawn, axes)
    ours = pd.concat(panels).dropna(subset="IFR low")
    wide = (ours["IFR low"] < paper["IFR"].min()) & (ours["IFR high"] > paper["IFR"].max())
    shown = f"{wide.sum()} of {len(wide)} span all of the paper's values"
    finding = f"On KnowGIC our intervals of IFR are too wide to rank methods: {shown}"
    note = "both axes are logarithmic; the paper's Tables 5 and 6 have no intervals"
    caption = f"{caption_of(runs, f'exact, {mode}')}{_BARS}\n{note}"
    return style.told(drawn, finding, caption)


@figure("06_recalled_links", alone=True)
def recalled_links() -> Figure:
    """Links that each stage of the packaged recalled graphs left, in percent of those proposed."""
    drawn, axes = plt.subplots(figsize=(7, 3.4))
    files = ((m, PACKAGED / f"thinkedit/recalled-{m}-links.csv") for m in PACKAGED_WORDS)
    left = {m: pd.read_csv(f, index_col=0).loc["all"] for m, f in files if f.exists()}
    axes.grid(axis="y", visible=False)
    for number, (model, counts) in enumerate(left.items()):
        at = np.arange(len(counts)) + 0.26 * (number - (len(left) - 1) / 2)
        shares = 100 * counts / counts["proposed"]
        bars = axes.barh(at, shares, 0.24, color=style.PALETTE[number], label=model)
        axes.bar_label(bars, [f"{count:,}" for count in counts], padding=2, fontsize=7)
    axes.set_yticks(range(len(counts)), counts.index)
    axes.set(ylim=(len(counts) - 0.5, -0.5), xlim=(0, 108), xlabel="% of the proposed links")
    axes.legend(loc="lower right")
    kept = (f"{100 * n['validated'] / n['proposed']:.0f} % ({model})" for model, n in left.items())
    finding = f"Of the links that stores propose models confirm few: {', '.join(kept)}"
    of = "; ".join(map(model_words, left))
    return style.told(drawn, finding, f"ours: {of}\nedits are made of the last stage's links")


def _grid(n: int, columns: int = 3) -> tuple[Figure, list[Axes]]:
    """Panels of one scale, row by row."""
    rows = -(-n // columns)
    how: dict[str, Any] = {"sharex": True, "sharey": True, "squeeze": False}
    drawn, grid = plt.subplots(rows, columns, figsize=(7.9, 2.2 * rows + 0.8), **how)
    for number, panel in enumerate(grid.flat):
        panel.tick_params(labelbottom=True)
        panel.set_visible(number < n)
    return drawn, list(grid.flat)[:n]


def _legend(drawn: Figure, axes: Sequence[Axes]) -> None:
    """One for all panels; not every mark is in every panel."""
    pairs = (zip(*panel.get_legend_handles_labels(), strict=True) for panel in axes)
    marks = {label: mark for panel in pairs for mark, label in panel}
    if len(marks) > 1:
        drawn.legend(marks.values(), marks, loc="outside right center")


def _dots(
    panels: Mapping[str, Mapping[str, tuple[str, Table]]], columns: int = 3, **look: Any
) -> Figure:
    """A row a method, in each panel a mark for each series: measure, table."""
    drawn, axes = _grid(len(panels), columns)
    every = pd.concat(table for panel in panels.values() for _, table in panel.values())
    methods = tables.ordered(every.assign(model=""))["method"].unique().tolist()
    for panel, (title, series) in zip(axes, panels.items(), strict=True):
        for number, (label, (name, table)) in enumerate(series.items()):
            aside = 0.25 * (number - (len(series) - 1) / 2)
            marks: Any = {"color": style.PALETTE[number], "fmt": style.MARKERS[number]}
            marks |= {"label": label, "across": True, "markersize": 4}
            places = table["method"].map(methods.index) + aside
            style.marked(panel, places, _marks(table, name), **marks)
        panel.set_yticks(range(len(methods)), [method_label(method) for method in methods])
        panel.set(ylim=(len(methods) - 0.4, -0.6), **look)
        panel.set_title(title, fontsize=8)
    _legend(drawn, axes)
    return drawn
