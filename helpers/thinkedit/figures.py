"""ThinkEdit's figures, each drawn from the stored runs of all models together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame as Table

from helpers.editing.editors import distinct, method_label
from helpers.paths import PACKAGED
from helpers.results import style
from helpers.results.archive import PACKAGED_WORDS, Run, model_words
from helpers.results.figure import Option, figure
from helpers.results.looks import method_line
from helpers.results.statistics import Estimate
from helpers.results.text import INCONCLUSIVE
from helpers.thinkedit import links, metrics, tables
from helpers.thinkedit.knowgic import LAYOUTS
from helpers.thinkedit.metrics import DEFAULT, Known
from helpers.thinkedit.modes import SEQUENTIAL
from helpers.thinkedit.tables import caption_of_runs, is_recalled, model_of, terms_of_runs

_BARS = "; bars: 95 % intervals over edits"
_TICKS_OF_SHARES = (0, 0.01, 0.1, 0.25, 0.5, 1)
_SQUARE_ROOT_SCALE = (
    lambda value: np.maximum(value, 0) ** 0.5,
    np.square,
)  # a scale, and its inverse
_STEPS = ["1", "2", "3", "4", "5"]


class Mark(NamedTuple):
    """A measure with its interval, drawn for each row of a table."""

    measure: str  # its column
    table: Table


@dataclass(frozen=True)
class GraphPanel:
    """The methods' measures of one model's edits, and the kind of graph that the edits are of."""

    kind: str  # such as "own graph"
    model: str
    counts: str  # what the measures are made from; empty of the paper's, which gives none
    table: Table

    @property
    def title(self) -> str:
        """A line each for model, kind and counts."""
        return f"{self.model}\n{self.kind}\n{self.counts}".strip()


def _drawn_mode(run: Run) -> str:
    """The mode that is drawn: of KnowGIC's edits the paper's, if they were made so; of others each alone."""
    made_in_sequence = any(key.mode == SEQUENTIAL for key in run.keys)
    return SEQUENTIAL if made_in_sequence and not is_recalled(run) else "independent"


def _has_single_edits(run: Run) -> bool:
    return any(key.kind == "exact" and key.mode == "independent" for key in run.keys)


def _main_modes(run: Run) -> list[str]:
    """Of the two modes of the paper those that a run has exact scores of."""
    modes = {key.mode for key in run.keys if key.kind == "exact"}
    return [mode for mode in ("independent", SEQUENTIAL) if mode in modes]


_BY_MODE = {"mode": Option("mode", _main_modes)}
_stored_runs = partial(figure, of="thinkedit", needs=("exact", "chains"), together=True)
_exact_scores = partial(
    _stored_runs, main="smollm2-135m", when=lambda run: _drawn_mode(run) == SEQUENTIAL
)
_recalled_graphs = partial(
    _stored_runs, when=lambda run: is_recalled(run) and _has_single_edits(run)
)


def _order_of_size(model: str) -> int:
    """Packaged models by size, others after them."""
    return [*PACKAGED_WORDS, model].index(model)


def _terms_without_app(runs: Sequence[Run], rule: Known) -> Table:
    """Exact metrics of the methods without APP."""
    return tables.split_app(terms_of_runs(tuple(runs), rule=rule))[0]


def _caption_with_notes(runs: Sequence[Run], rule: Known, *further_words: str, notes: str) -> str:
    """What a figure's numbers are of, and how they are made."""
    caption_lines = [f"{caption_of_runs(runs, *further_words, str(rule))}{_BARS}", notes]
    methods = {key.method for run in runs for key in run.keys}
    if any(method.startswith("mend") for method in methods):
        caption_lines.append(tables.UNDERTRAINED)
    return "\n".join(caption_lines)


def _by_graph(
    runs: Sequence[Run],
    make_table: Callable[..., Table],
    paper_table: Table,
    words_of_counts: Callable[[Table], str],
    rule: Known,
    mode: str = "",
) -> list[GraphPanel]:
    """A panel for each run, those on recalled graphs first, then for each of the paper's models.

    ``make_table`` is one of ``tables``' functions of terms; ``words_of_counts`` words what ours are made
    from.
    """
    runs_on_recalled_first = sorted(
        runs, key=lambda run: (not is_recalled(run), _order_of_size(run.about.source["model"]))
    )
    panels = []
    for run in runs_on_recalled_first:
        run_mode = mode or _drawn_mode(run)
        measures_of_methods = make_table(_terms_without_app([run], rule), mode=run_mode)
        kind = _kind_of_graph(run, run_mode)
        counts_words = words_of_counts(measures_of_methods)
        panels.append(GraphPanel(kind, model_of(run), counts_words, measures_of_methods))
    for model, measures_of_methods in paper_table.groupby("model"):
        panels.append(GraphPanel("the paper, pooled", str(model), "", measures_of_methods))
    return panels


def _kind_of_graph(run: Run, mode: str) -> str:
    """Whose graphs a run's edits are of, and, where that is not the paper's way, that each is alone."""
    if is_recalled(run):
        return "own graph"
    graph_words = "KnowGIC" if run.about.source["layout"] in LAYOUTS else "other edits"
    return f"{graph_words}, alone" if mode == "independent" else graph_words


def _words_of_counts(table: Table, measure: str, kind_of_terms: str) -> str:
    """How many edits are behind a measure, and how many terms (chains, facts) they have together."""
    edit_count = _largest_count(table, f"{measure} edits")
    return f"{_largest_count(table, f'{measure} terms')} {kind_of_terms} of {edit_count} edits"


def _largest_count(table: Table, column: str) -> int:
    return int(table[column].max())


def _counts_by_graph(panels: Sequence[GraphPanel], is_true: Callable[[Table], pd.Series]) -> str:
    """In words, the number of methods of which something is true, by the kind of graph."""
    truths_by_kind: dict[str, list[bool]] = {}
    for panel in panels:
        truths_by_kind.setdefault(panel.kind, []).extend(is_true(panel.table))
    return ", ".join(
        f"{sum(of_kind)} of {len(of_kind)} ({kind})" for kind, of_kind in truths_by_kind.items()
    )


def _intervals(mark: Mark) -> Table:
    """Columns mean, low and high, as ``draw_intervals`` takes them; NaN where the table has no interval."""
    measure = mark.measure
    column_names = {measure: "mean", f"{measure} low": "low", f"{measure} high": "high"}
    return mark.table.reindex(columns=list(column_names)).rename(columns=column_names)


@_stored_runs("06_direct_against_chains", when=_has_single_edits)
def direct_against_chains(runs: Sequence[Run], *, rule: Known = DEFAULT) -> Figure:
    """IFR of the direct question and of longer chains (Figures 2 and 4, for all edits), each alone."""
    runs = _in_order(runs)
    mode = "independent"

    def counts_of(table: Table) -> str:
        direct_count = _largest_count(table, "1 edits")
        longer_count = _largest_count(table, f"{tables.LONGER} edits")
        return f"n = {direct_count} and {longer_count} edits"

    panels = _by_graph(runs, tables.length_table, tables.paper_lengths(), counts_of, rule, mode)
    columns = {"direct question": "1", "chains of two\nor more steps": tables.LONGER}
    marks_by_title = {
        panel.title: {label: Mark(column, panel.table) for label, column in columns.items()}
        for panel in panels
    }
    note = "IFR, mean over edits, at most 1 each; square-root scale; counted: edits with both, after Holm's"
    caption = _caption_with_notes(runs, rule, "exact", notes=f"{note} correction")
    fig = _dots(marks_by_title)
    for axes in fig.axes:
        axes.set_xscale("function", functions=_SQUARE_ROOT_SCALE)
        axes.set(xlim=(-0.001, 1.02), xticks=_TICKS_OF_SHARES)
        axes.set_xticklabels(map("{:g}".format, _TICKS_OF_SHARES))
    return style.with_caption(fig, _more_left_in_words(runs, rule, mode), caption)


def _more_left_in_words(runs: Sequence[Run], rule: Known, mode: str) -> str:
    """For how many methods more is left along chains, by whose the graphs are."""
    more_left = []
    for kind, runs_of_kind in _by_kind(runs).items():
        measure_terms = _terms_without_app(runs_of_kind, rule)
        verdicts = tables.longer_table(measure_terms, mode=mode).table["Holm"]
        more_left.append(f"{(verdicts == 'more').sum()} of {len(verdicts)} ({kind})")
    return (
        "Significantly more is left along chains than at the direct question:"
        f" {', '.join(more_left)}"
    )


def _in_order(runs: Sequence[Run]) -> list[Run]:
    """As the archive lists them, so that whoever draws a figure of the same runs draws the same."""
    return sorted(runs, key=lambda run: run.name)


def _by_kind(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs by whose the graphs are: those on recalled graphs, then the others."""
    runs_by_kind = {
        "own graphs": [run for run in runs if is_recalled(run)],
        "other graphs": [run for run in runs if not is_recalled(run)],
    }
    return {kind: runs_of_kind for kind, runs_of_kind in runs_by_kind.items() if runs_of_kind}


@_recalled_graphs("06_ifr_by_length")
def ifr_by_length(runs: Sequence[Run], *, rule: Known = DEFAULT) -> Figure:
    """IFR of chains of one to five steps on one scale, ours and the paper's (its Figure 5)."""
    runs = _in_order(runs)
    panels = _by_graph(runs, tables.length_table, tables.paper_lengths(), lambda table: "", rule)
    fig, grid = _grid(len(panels))
    for axes, panel in zip(grid, panels, strict=True):
        _draw_lengths(axes, panel.table)
        axes.set_title(panel.title, fontsize=8)
    fig.supylabel("IFR (square-root scale)", fontsize=9)
    _legend(fig, grid)
    peaks = _counts_by_graph(
        panels, lambda table: table[_STEPS].astype(float).idxmax(axis=1).isin(["2", "3"])
    )
    finding = f"Mean IFR is highest along chains of two or three steps: {peaks}"
    note = (
        "ours: mean over edits, at most 1 each; above: n of edits; not tested; the paper gives no n"
    )
    caption = _caption_with_notes(runs, rule, "exact", notes=note)
    return style.with_caption(fig, finding, caption)


def _draw_lengths(axes: Axes, table: Table) -> None:
    """A line a method over the numbers of steps, and the numbers of edits above, where the table has them."""
    for method_index, method in enumerate(table["method"]):
        row_of_method = table.iloc[[method_index]]
        estimates = pd.concat([_intervals(Mark(step, row_of_method)) for step in _STEPS])
        line_style = method_line(method) | {"markersize": 4}
        shift = 0.1 * (method_index - (len(table) - 1) / 2)
        style.draw_intervals(axes, np.arange(len(_STEPS)) + shift, estimates, **line_style)
    if f"{_STEPS[0]} edits" in table:
        for method_index, step in enumerate(_STEPS):
            edits = str(int(table[f"{step} edits"].iloc[0]))
            axes.text(method_index, 0.97, edits, ha="center", va="top", fontsize=7)
    axes.set_xticks(range(len(_STEPS)), _STEPS)
    axes.set_yscale("function", functions=_SQUARE_ROOT_SCALE)
    axes.set(ylim=(0, 1), yticks=_TICKS_OF_SHARES)


@_recalled_graphs("06_what_is_left", options=_BY_MODE)
def what_is_left(
    runs: Sequence[Run], *, mode: str = "independent", rule: Known = DEFAULT
) -> Figure:
    """Share of deep edits (Definition 2), and what is left of each kind of fact."""
    measures = (tables.DEEP, *tables.FACT_KINDS)
    table = tables.measure_table(_terms_without_app(runs, rule), measures, mode=mode)
    titles = {
        "deep edits: share\nthat leave no chain": metrics.DEEP,
        "left of the\nedited fact": metrics.DIRECT,
        "left of other facts\nabout its subject": metrics.OWN,
        "left of facts about\nother subjects (CKP)": "CKP",
    }
    models = sorted(table["model"].unique(), key=_order_of_size)
    by_model = {model: table[table["model"] == model] for model in models}
    marks_by_title = {
        title: {model: Mark(measure, of_model) for model, of_model in by_model.items()}
        for title, measure in titles.items()
    }
    counts_in_words = []
    for model, of_model in by_model.items():
        edit_counts = [_largest_count(of_model, f"{measure} edits") for measure in measures]
        counts_in_words.append(f"{model} {'/'.join(map(str, edit_counts))}")
    counts = "; ".join(counts_in_words)
    note = f"n of edits, by panel: {counts}; ratios: mean over edits, at most 1 each"
    note += "\ntitle: intervals of the last two panels are apart"
    caption = _caption_with_notes(runs, rule, f"exact, {mode}", notes=note)
    fig = _dots(marks_by_title, 4, xlim=(-0.04, 1.04), xticks=(0, 0.5, 1))
    return style.with_caption(fig, _less_of_own_in_words(table), caption)


def _less_of_own_in_words(table: Table) -> str:
    """Methods whose intervals of the subject's other facts are below those of others', in all models."""
    is_less = table[f"{metrics.OWN} high"] < table["CKP low"]
    less_in_all = is_less.groupby(table["method"], sort=False).all()
    methods = [method_label(str(method)) for method in less_in_all.index[less_in_all]]
    return (
        f"{', '.join(methods) or 'No method'}: less is left of the subject's other facts than of"
        " other subjects' facts"
    )


@_recalled_graphs("06_two_ways")
def two_ways(runs: Sequence[Run], *, mode: str = "independent", rule: Known = DEFAULT) -> Figure:
    """First links against later links of chains that are known after an edit: two ways to break a graph."""
    runs_by_size = sorted(runs, key=lambda run: _order_of_size(run.about.source["model"]))
    shares = links.links_table(runs_by_size, rule=rule)
    estimates_by_model: dict[str, dict[str, dict[str, Estimate]]] = {}
    counts_in_words = []
    for run in runs_by_size:
        model = model_of(run)
        edits_by_method = {
            method: edits
            for (of_model, method), edits in links.in_mode(shares, mode).items()
            if of_model == model
        }
        estimates_by_model[model] = {
            method: links.link_estimates(edits_by_method[method])
            for method in distinct(edits_by_method)
        }
        counts = [estimates[links.FIRST].n for estimates in estimates_by_model[model].values()]
        range_ends = dict.fromkeys((min(counts), max(counts)))
        counts_in_words.append(f"{model} {' to '.join(map(str, range_ends))}")
    fig, grid = _grid(len(estimates_by_model), row_height=3.6)
    for axes, (model, estimates_by_method) in zip(grid, estimates_by_model.items(), strict=True):
        _draw_two_ways(axes, estimates_by_method)
        axes.set_title(model, fontsize=9)
        axes.set_xlabel("first links known")
    grid[0].set_ylabel("later links known")
    _legend(fig, grid)
    note = (
        "first links: facts about the edited subject that begin a chain; later links: all others; of those"
        f" known before, mean over edits; edits: {', '.join(counts_in_words)}"
    )
    caption = _caption_with_notes(runs_by_size, rule, f"exact, {mode}", notes=note)
    return style.with_caption(fig, _two_ways_in_words(estimates_by_model), caption)


def _draw_two_ways(axes: Axes, estimates_by_method: Mapping[str, Mapping[str, Estimate]]) -> None:
    """A point a method with both its intervals, over a diagonal on which both kinds of links suffer alike."""
    axes.plot([0, 1], [0, 1], color="0.8", linewidth=0.8, zorder=0)
    word_style: dict[str, Any] = {"fontsize": 7, "color": "0.4", "style": "italic"}
    axes.text(0.01, 0.42, "the subject\nis forgotten", **word_style)
    axes.text(1.02, -0.02, "facts elsewhere\nare forgotten", ha="right", **word_style)
    for method, estimates in estimates_by_method.items():
        point_style = method_line(method) | {"linestyle": "", "markersize": 6}
        first = Table([vars(estimates[links.FIRST])])
        later = Table([vars(estimates[links.LATER])])
        style.draw_intervals(axes, later["mean"], first, across=True, **point_style)
        style.draw_intervals(axes, first["mean"], later, **(point_style | {"label": None}))
    axes.set(xlim=(-0.04, 1.04), ylim=(-0.04, 1.04), xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
    axes.set_aspect("equal")


def _two_ways_in_words(
    estimates_by_model: Mapping[str, Mapping[str, Mapping[str, Estimate]]],
) -> str:
    """What the smallest model knows after MEMIT and, where it is stored, after FT-M."""
    model, estimates_by_method = next(iter(estimates_by_model.items()))
    words_of_methods = []
    for method in ("memit", "ft-m"):
        if method in estimates_by_method:
            estimates = estimates_by_method[method]
            first, later = (100 * estimates[kind].mean for kind in (links.FIRST, links.LATER))
            label = method_label(method)
            # A line does not end before the percent sign.
            words_of_methods.append(f"{first:.0f}\u00a0% and {later:.0f}\u00a0% after {label}")
    return (
        f"Two ways to break a graph: of the first and of the later links {model} knows"
        f" {', '.join(words_of_methods)}"
    )


@_exact_scores("06_ckp", options=_BY_MODE)
def preservation(runs: Sequence[Run], *, mode: str = "sequential", rule: Known = DEFAULT) -> Figure:
    """CKP of each method with its interval, ours and the paper's (its Figure 6)."""
    panels = _by_graph(
        runs,
        tables.technique_table,
        tables.paper_techniques(),
        lambda table: _words_of_counts(table, "CKP", "facts"),
        rule,
        mode,
    )
    note = "ours: mean over edits, at most 1 each; the paper's pooled values have no intervals"
    caption = _caption_with_notes(runs, rule, f"exact, {mode}", notes=note)
    marks_by_title = {panel.title: {"CKP": Mark("CKP", panel.table)} for panel in panels}
    fig = _dots(marks_by_title, xlim=(-0.04, 1.04), xticks=(0, 0.5, 1))
    return style.with_caption(fig, _lowest_in_words(panels), caption)


def _lowest_in_words(panels: Sequence[GraphPanel]) -> str:
    """The lowest CKP of each of our models, and whose it is."""
    words_by_model = {}
    for panel in panels:
        if "CKP low" in panel.table:
            worst_row = panel.table.nsmallest(1, "CKP").iloc[0]
            label = method_label(worst_row["method"])
            words_by_model[panel.model] = f"{label}'s {worst_row['CKP']:.2f} ({panel.model})"
    return f"Lowest mean CKP on KnowGIC: {', '.join(words_by_model.values())}"


@_exact_scores("06_ifr_against_ckp", options=_BY_MODE)
def trade_off(runs: Sequence[Run], *, mode: str = "sequential", rule: Known = DEFAULT) -> Figure:
    """IFR and CKP, ours and the paper's own points (its Figure 7); the ideal is the upper left."""
    panels = _by_graph(
        runs,
        tables.technique_table,
        tables.paper_techniques(),
        lambda table: _words_of_counts(table, "IFR", "chains"),
        rule,
        mode,
    )
    fig, grid = _grid(len(panels))
    for axes, panel in zip(grid, panels, strict=True):
        _draw_points(axes, panel.table)
        axes.set_title(panel.title, fontsize=8)
        axes.set(xlim=(-0.04, 1.04), ylim=(-0.04, 1.04), xlabel="IFR")
        axes.set(xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
    fig.supylabel("CKP (1: no fact lost)", fontsize=9)
    _legend(fig, grid)
    note = "ours: mean over edits, at most 1 each; the paper's pooled values have no intervals"
    caption = _caption_with_notes(runs, rule, f"exact, {mode}", notes=note)
    return style.with_caption(fig, _differences_in_words(runs, rule, mode), caption)


def _draw_points(axes: Axes, table: Table) -> None:
    """A point for each method at its IFR and CKP, with both intervals."""
    for method, row_of_method in table.groupby("method", sort=False):
        point_style = method_line(str(method)) | {"linestyle": "", "markersize": 5}
        style.draw_intervals(
            axes,
            row_of_method["CKP"],
            _intervals(Mark("IFR", row_of_method)),
            across=True,
            **point_style,
        )
        style.draw_intervals(
            axes,
            row_of_method["IFR"],
            _intervals(Mark("CKP", row_of_method)),
            across=False,
            **point_style,
        )


def _differences_in_words(runs: Sequence[Run], rule: Known, mode: str) -> str:
    """How many of the methods' differences from MEMIT are significant."""
    measure_terms = _terms_without_app(runs, rule)
    tested_differences = tables.difference_table(
        measure_terms, measure_terms, mode=mode, than="memit"
    ).table
    is_significant = tested_differences["Holm"] != INCONCLUSIVE
    return (
        f"On KnowGIC {is_significant.sum()} of {len(tested_differences)} differences from MEMIT in IFR or"
        " CKP are significant after correction"
    )


@figure("06_recalled_links", alone=True)
def recalled_links() -> Figure:
    """Links that each stage of the packaged recalled graphs left, in percent of those proposed."""
    links_left = _links_left()
    fig, axes = plt.subplots(figsize=(7, 3.4))
    _draw_links_left(axes, links_left)
    models = "; ".join(map(model_words, links_left))
    caption = f"ours: {models}\nedits are made of the last stage's links"
    return style.with_caption(fig, _confirmed_in_words(links_left), caption)


def _draw_links_left(axes: Axes, links_left: Mapping[str, pd.Series]) -> None:
    """A group of bars a stage, and in it a bar a model with its number of links."""
    axes.grid(axis="y", visible=False)
    for model_index, (model, links_by_stage) in enumerate(links_left.items()):
        aside = 0.26 * (model_index - (len(links_left) - 1) / 2)
        heights = np.arange(len(links_by_stage)) + aside
        shares = 100 * links_by_stage / links_by_stage["proposed"]
        colour = style.PALETTE[model_index]
        bars = axes.barh(heights, shares, 0.24, color=colour, label=model)
        axes.bar_label(bars, [f"{count:,}" for count in links_by_stage], padding=2, fontsize=7)
    stages = next(iter(links_left.values())).index
    axes.set_yticks(range(len(stages)), stages)
    axes.set(ylim=(len(stages) - 0.5, -0.5), xlim=(0, 108), xlabel="% of the proposed links")
    axes.legend(loc="lower right")


def _confirmed_in_words(links_left: Mapping[str, pd.Series]) -> str:
    """The share of the proposed links that each model confirms."""
    confirmed = [
        f"{100 * links_by_stage['validated'] / links_by_stage['proposed']:.0f} % ({model})"
        for model, links_by_stage in links_left.items()
    ]
    return f"Of the links that stores propose models confirm few: {', '.join(confirmed)}"


def _links_left() -> dict[str, pd.Series]:
    """Links of the packaged recalled graphs after each stage, by model."""
    links_left = {}
    for model in PACKAGED_WORDS:
        file = PACKAGED / f"thinkedit/recalled-{model}-links.csv"
        if file.exists():
            links_left[model] = pd.read_csv(file, index_col=0).T["all"]
    return links_left


def _grid(
    panel_count: int, columns: int = 3, *, row_height: float = 2.2
) -> tuple[Figure, list[Axes]]:
    """A figure of as many panels, row by row, that share their scales; ``row_height`` is in inches."""
    row_count = -(-panel_count // columns)
    fig, grid = plt.subplots(
        row_count,
        columns,
        figsize=(7.9, row_height * row_count + 0.8),
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    for panel_index, axes in enumerate(grid.flat):
        axes.tick_params(labelbottom=True)
        axes.set_visible(panel_index < panel_count)
    return fig, list(grid.flat)[:panel_count]


def _legend(fig: Figure, grid: Sequence[Axes]) -> None:
    """One legend for all panels; not every mark is in every panel."""
    handles: dict[str, Any] = {}
    for axes in grid:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles[label] = handle
    if len(handles) > 1:
        fig.legend(handles.values(), handles, loc="outside right center")


def _dots(
    marks_by_title: Mapping[str, Mapping[str, Mark]], columns: int = 3, **limits: Any
) -> Figure:
    """A panel for each title with a row a method, and in each row a dot for each labelled mark."""
    all_rows = pd.concat(
        [mark.table for marks in marks_by_title.values() for mark in marks.values()]
    )
    methods = tables.in_papers_order(all_rows.assign(model=""))["method"].unique().tolist()
    # A line of text a method; the caption below takes more than the panels of a single row can spare.
    row_height = max(2.2, 0.45 * len(methods))
    fig, grid = _grid(len(marks_by_title), columns, row_height=row_height)
    for axes, (title, marks) in zip(grid, marks_by_title.items(), strict=True):
        for mark_index, (label, mark) in enumerate(marks.items()):
            shift = 0.25 * (mark_index - (len(marks) - 1) / 2)
            style.draw_intervals(
                axes,
                mark.table["method"].map(methods.index) + shift,
                _intervals(mark),
                across=True,
                color=style.PALETTE[mark_index],
                fmt=style.MARKERS[mark_index],
                label=label,
                markersize=4,
            )
        axes.set_yticks(range(len(methods)), [method_label(method) for method in methods])
        axes.set(ylim=(len(methods) - 0.4, -0.6), **limits)
        axes.set_title(title, fontsize=8)
    _legend(fig, grid)
    return fig
