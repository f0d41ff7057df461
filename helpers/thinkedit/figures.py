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
from helpers.results.looks import method_line
from helpers.results.text import INCONCLUSIVE
from helpers.thinkedit import metrics, tables
from helpers.thinkedit.knowgic import LAYOUTS
from helpers.thinkedit.metrics import DEFAULT, Known
from helpers.thinkedit.tables import caption_of_runs, is_recalled, model_of, terms_of_runs

_BARS = "; bars: 95 % intervals over edits"
_SHARES = (0, 0.01, 0.1, 0.25, 0.5, 1)
_ROOT = (lambda value: np.maximum(value, 0) ** 0.5, np.square)  # a scale, and its inverse
_STEPS = ["1", "2", "3", "4", "5"]


def _mode(run: Run) -> str:
    """KnowGIC's edits are drawn as the paper makes them, if they were made so; others each alone."""
    sequences = not is_recalled(run) and any(part.endswith(", sequential") for part in run.tables)
    return "sequential" if sequences else "independent"


def _has_single_edits(run: Run) -> bool:
    return any(p.startswith("exact: ") and p.endswith(", independent") for p in run.tables)


_stored = partial(figure, of="thinkedit", needs=("exact", "chains"), together=True)
_exact = partial(_stored, main="smollm2-135m", when=lambda run: _mode(run) == "sequential")
_recalled = partial(_stored, when=lambda run: is_recalled(run) and _has_single_edits(run))


def _order_of_size(model: str) -> int:
    """Packaged models by size, others after them."""
    return [*PACKAGED_WORDS, model].index(model)


def _terms_without_app(runs: Sequence[Run], rule: Known) -> Table:
    """Exact metrics of the methods without APP."""
    return tables.split_app(terms_of_runs(tuple(runs), rule=rule))[0]


def _caption_with_notes(runs: Sequence[Run], rule: Known, *words: str, notes: str) -> str:
    """What a figure's numbers are of, and how they are made."""
    lines = [f"{caption_of_runs(runs, *words, str(rule))}{_BARS}", notes]
    methods = {name.partition(": ")[2] for run in runs for name in run.tables}
    if any(method.startswith("mend") for method in methods):
        lines.append(tables.UNDERTRAINED)
    return "\n".join(lines)


def _by_graph(
    runs: Sequence[Run],
    table: Callable[..., Table],
    paper: Table,
    behind: Callable[[Table], str],
    rule: Known,
    mode: str = "",
) -> dict[str, Table]:
    """A table of each run's model and graphs, own graphs first, then those of each of the paper's models.
    ``behind`` words what each of ours is made from.
    """
    panels = {}
    for run in sorted(
        runs, key=lambda r: (not is_recalled(r), _order_of_size(r.about.source["model"]))
    ):
        run_mode = mode or _mode(run)
        part = table(_terms_without_app([run], rule), mode=run_mode)
        edits = "KnowGIC" if run.about.source["layout"] in LAYOUTS else "other edits"
        graph = "own graph" if is_recalled(run) else edits + ", alone" * (run_mode == "independent")
        panels[f"{model_of(run)}\n{graph}\n{behind(part)}".strip()] = part
    pooled = {f"{model}\nthe paper, pooled": part for model, part in paper.groupby("model")}
    return panels | pooled


def _n(table: Table, name: str, terms: str = "") -> str:
    """How many edits are behind a measure, and of how many terms (chains, facts) they have any."""
    edits, count = (int(table[f"{name} {what}"].max()) for what in ("edits", "terms"))
    return f"{count} {terms} of {edits} edits" if terms else f"n = {edits} edits"


def _counts_by_graph(panels: Mapping[str, Table], true: Callable[[Table], pd.Series]) -> str:
    """Of how many methods it is true, by the kind of graph."""
    found: dict[str, list[bool]] = {}
    for title, part in panels.items():
        found.setdefault(title.split("\n")[1], []).extend(true(part))
    return ", ".join(f"{sum(each)} of {len(each)} ({kind})" for kind, each in found.items())


def _marks(table: Table, name: str) -> Table:
    """A measure as ``style.marked`` takes it; without an interval where the table has none."""
    ends = {name: "mean", f"{name} low": "low", f"{name} high": "high"}
    return table.reindex(columns=list(ends)).rename(columns=ends)


@_stored("06_direct_against_chains", when=_has_single_edits)
def direct_against_chains(runs: Sequence[Run], *, rule: Known = DEFAULT) -> Figure:
    """IFR of the direct question and of longer chains (Figures 2 and 4, for all edits), each alone."""
    runs = _in_order(runs)
    mode, paper = "independent", tables.paper_lengths()

    def behind(part: Table) -> str:
        counts = (int(part[f"{name} edits"].max()) for name in ("1", tables.LONGER))
        return "n = {} and {} edits".format(*counts)

    panels = _by_graph(runs, tables.length_table, paper, behind, rule, mode)
    counts = []
    for kind, alike in _by_kind(runs).items():
        verdicts = tables.longer_table(_terms_without_app(alike, rule), mode=mode)["Holm"]
        counts.append(f"{(verdicts == 'more').sum()} of {len(verdicts)} ({kind})")
    names = {"direct question": "1", "chains of two\nor more steps": tables.LONGER}
    series = {t: {name: (x, part) for name, x in names.items()} for t, part in panels.items()}
    finding = (
        f"Significantly more is left along chains than at the direct question: {', '.join(counts)}"
    )
    note = "IFR, mean over edits, at most 1 each; square-root scale; counted: edits with both, after Holm's"
    caption = _caption_with_notes(runs, rule, "exact", notes=f"{note} correction")
    drawn = _dots(series)
    for panel in drawn.axes:
        panel.set_xscale("function", functions=_ROOT)
        panel.set(xlim=(-0.001, 1.02), xticks=_SHARES)
        panel.set_xticklabels(map("{:g}".format, _SHARES))
    return style.with_caption(drawn, finding, caption)


def _in_order(runs: Sequence[Run]) -> list[Run]:
    """As the archive lists them, so that whoever draws a figure of the same runs draws the same."""
    return sorted(runs, key=lambda run: run.name)


def _by_kind(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs by whose the graphs are."""
    kinds: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda r: not is_recalled(r)):
        kinds.setdefault("own graphs" if is_recalled(run) else "other graphs", []).append(run)
    return kinds


@_recalled("06_ifr_by_length")
def lengths(runs: Sequence[Run], *, rule: Known = DEFAULT) -> Figure:
    """IFR of chains of one to five steps on one scale, ours and the paper's (its Figure 5)."""
    runs = _in_order(runs)
    panels = _by_graph(runs, tables.length_table, tables.paper_lengths(), lambda part: "", rule)
    drawn, axes = _grid(len(panels))
    for panel, (title, part) in zip(axes, panels.items(), strict=True):
        for place in range(len(part)):
            marks = pd.concat(_marks(part.iloc[[place]], step) for step in _STEPS)
            look = method_line(part["method"].iloc[place]) | {"markersize": 4}
            aside = 0.1 * (place - (len(part) - 1) / 2)
            style.marked(panel, np.arange(5) + aside, marks, **look)
        if f"{_STEPS[0]} edits" in part:
            for place, step in enumerate(_STEPS):
                edits = str(int(part[f"{step} edits"].iloc[0]))
                panel.text(place, 0.97, edits, ha="center", va="top", fontsize=7)
        panel.set_xticks(range(5), _STEPS)
        panel.set_title(title, fontsize=8)
        panel.set_yscale("function", functions=_ROOT)
        panel.set(ylim=(0, 1), yticks=_SHARES)
    drawn.supylabel("IFR (square-root scale)", fontsize=9)
    _legend(drawn, axes)
    peaks = _counts_by_graph(
        panels, lambda p: p[_STEPS].astype(float).idxmax(axis=1).isin(["2", "3"])
    )
    finding = f"Mean IFR is highest along chains of two or three steps: {peaks}"
    note = (
        "ours: mean over edits, at most 1 each; above: n of edits; not tested; the paper gives no n"
    )
    caption = _caption_with_notes(runs, rule, "exact", notes=note)
    return style.with_caption(drawn, finding, caption)


@_recalled("06_what_is_left")
def what_is_left(
    runs: Sequence[Run], *, mode: str = "independent", rule: Known = DEFAULT
) -> Figure:
    """Share of deep edits (Definition 2), and what is left of each kind of fact."""
    names = (tables.DEEP, *tables.KINDS)
    table = tables.measure_table(_terms_without_app(runs, rule), names, mode=mode)
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
    models = {m: table.query("model == @m") for m in sorted({*table["model"]}, key=_order_of_size)}
    panels = {t: {m: (name, part) for m, part in models.items()} for t, name in titles.items()}
    counts = []
    for model, part in models.items():
        edits = "/".join(str(int(part[f"{name} edits"].max())) for name in names)
        counts.append(f"{model} {edits}")
    note = f"n of edits, by panel: {'; '.join(counts)}; ratios: mean over edits, at most 1 each"
    note += "\ntitle: intervals of the last two panels are apart"
    caption = _caption_with_notes(runs, rule, f"exact, {mode}", notes=note)
    return style.with_caption(
        _dots(panels, 4, xlim=(-0.04, 1.04), xticks=(0, 0.5, 1)), finding, caption
    )


@_exact("06_ckp")
def preservation(runs: Sequence[Run], *, mode: str = "sequential", rule: Known = DEFAULT) -> Figure:
    """CKP of each method with its interval, ours and the paper's (its Figure 6)."""
    paper = tables.paper_techniques()
    panels = _by_graph(
        runs, tables.technique_table, paper, lambda part: _n(part, "CKP", "facts"), rule
    )
    lowest = {}
    for title, part in panels.items():
        if "CKP low" in part:
            worst = part.nsmallest(1, "CKP").iloc[0]
            model = title.partition("\n")[0]
            lowest[model] = f"{method_label(worst['method'])}'s {worst['CKP']:.2f} ({model})"
    finding = f"Lowest mean CKP on KnowGIC: {', '.join(lowest.values())}"
    note = "ours: mean over edits, at most 1 each; the paper's pooled values have no intervals"
    caption = _caption_with_notes(runs, rule, f"exact, {mode}", notes=note)
    series = {title: {"CKP": ("CKP", part)} for title, part in panels.items()}
    return style.with_caption(
        _dots(series, xlim=(-0.04, 1.04), xticks=(0, 0.5, 1)), finding, caption
    )


@_exact("06_ifr_against_ckp")
def trade_off(runs: Sequence[Run], *, mode: str = "sequential", rule: Known = DEFAULT) -> Figure:
    """IFR and CKP, ours and the paper's own points (its Figure 7); the ideal is the upper left."""
    paper = tables.paper_techniques()
    panels = _by_graph(
        runs, tables.technique_table, paper, lambda part: _n(part, "IFR", "chains"), rule
    )
    drawn, axes = _grid(len(panels))
    for panel, (title, part) in zip(axes, panels.items(), strict=True):
        for method, row in part.groupby("method", sort=False):
            for name, other, across in (("IFR", "CKP", True), ("CKP", "IFR", False)):
                look = method_line(str(method)) | {"linestyle": "", "markersize": 5}
                style.marked(panel, row[other], _marks(row, name), across=across, **look)
        panel.set_title(title, fontsize=8)
        panel.set(xlim=(-0.04, 1.04), ylim=(-0.04, 1.04), xlabel="IFR")
        panel.set(xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
    drawn.supylabel("CKP (1: no fact lost)", fontsize=9)
    _legend(drawn, axes)
    ours = _terms_without_app(runs, rule)
    tested = tables.difference_table(ours, ours, mode=mode, than="memit")
    decided = tested["Holm"] != INCONCLUSIVE
    finding = (
        f"On KnowGIC {decided.sum()} of {len(decided)} differences from MEMIT in IFR or CKP are"
        " significant after correction"
    )
    note = "ours: mean over edits, at most 1 each; the paper's pooled values have no intervals"
    caption = _caption_with_notes(runs, rule, f"exact, {mode}", notes=note)
    return style.with_caption(drawn, finding, caption)


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
    return style.with_caption(
        drawn, finding, f"ours: {of}\nedits are made of the last stage's links"
    )


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
