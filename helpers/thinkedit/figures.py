"""ThinkEdit's figures, each drawn from the stored runs of all models together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from helpers.results.archive import PACKAGED_WORDS, Run
from helpers.results.figure import Option, figure
from helpers.results.looks import method_line
from helpers.results.statistics import Estimate
from helpers.results.text import footer
from helpers.thinkedit import links, metrics, tables
from helpers.thinkedit.metrics import DEFAULT, Known
from helpers.thinkedit.modes import SEQUENTIAL
from helpers.thinkedit.tables import is_recalled, model_of, terms_of_runs

_TICKS_OF_SHARES = (0, 0.1, 0.25, 0.5, 1)
_SQUARE_ROOT_SCALE = (
    lambda value: np.maximum(value, 0) ** 0.5,
    np.square,
)  # a scale, and its inverse
_STEPS = ["1", "2", "3", "4", "5"]
_FEWEST_EDITS = 10  # behind a mark


class Mark(NamedTuple):
    """A measure with its interval, drawn for each row of a table."""

    measure: str  # its column
    table: Table


def _has_single_edits(run: Run) -> bool:
    return any(key.kind == "exact" and key.mode == "independent" for key in run.keys)


def _main_modes(run: Run) -> list[str]:
    """Of the two modes of the paper those that a run has exact scores of."""
    modes = {key.mode for key in run.keys if key.kind == "exact"}
    return [mode for mode in ("independent", SEQUENTIAL) if mode in modes]


_BY_MODE = {"mode": Option("mode", _main_modes)}
_stored_runs = partial(figure, of="thinkedit", needs=("exact", "chains"), together=True)
_recalled_graphs = partial(
    _stored_runs, when=lambda run: is_recalled(run) and _has_single_edits(run)
)


def _order_of_size(model: str) -> int:
    """Packaged models by size, others after them."""
    return [*PACKAGED_WORDS, model].index(model)


def _terms_without_app(runs: Sequence[Run], rule: Known) -> Table:
    """Exact metrics of the methods without APP."""
    return tables.split_app(terms_of_runs(tuple(runs), rule=rule))[0]


def _edits_footer(
    runs: Sequence[Run],
    *notes: str,
    counts: Sequence[str] = (),
    mode: str = "independent",
    with_app: bool = False,
) -> str:
    """``footer`` with how many edits of each model are measured, in the order of the panels.

    ``counts`` are the numbers in words, where they are not those of all edits.
    """
    counts_in_words = counts or [str(run.joined("exact")["case_id"].nunique()) for run in runs]
    facts = "recalled facts" if all(map(is_recalled, runs)) else "facts"
    made = "edited alone" if mode == "independent" else "edited in sequence"
    data = f"n = {', '.join(counts_in_words)} {facts}, {made}"
    methods = {key.method for run in runs for key in run.keys}
    has_mend = any(method.startswith("mend") for method in methods)
    training = ["MEND: undertrained"] if has_mend else []
    return footer(runs, data, "95 % intervals over edits", *notes, *training, with_app=with_app)


def _largest_count(table: Table, column: str) -> int:
    return int(table[column].max())


def _intervals(mark: Mark) -> Table:
    """Columns mean, low and high, as ``draw_intervals`` takes them; NaN where the table has no interval."""
    measure = mark.measure
    column_names = {measure: "mean", f"{measure} low": "low", f"{measure} high": "high"}
    return mark.table.reindex(columns=list(column_names)).rename(columns=column_names)


@_stored_runs("06_direct_against_chains", when=_has_single_edits)
def direct_against_chains(runs: Sequence[Run], *, rule: Known = DEFAULT) -> Figure:
    """What edits made alone leave of the old fact at the direct question and along longer chains (IFR).

    A panel for each model's own graph; where no run is of such a graph, for each run.
    """
    mode = "independent"
    runs_on_recalled = [run for run in runs if is_recalled(run)]
    shown_runs = _by_size(runs_on_recalled or runs)
    marks_by_title = {}
    table_by_model = {}
    for run in shown_runs:
        table = _without_twins(tables.length_table(_terms_without_app([run], rule), mode=mode))
        table_by_model[model_of(run)] = table
        longer_count = _largest_count(table, f"{tables.LONGER} edits")
        marks_by_title[f"{model_of(run)}\nn = {longer_count} with longer chains"] = {
            "direct question": Mark("1", table),
            "chains of two\nor more steps": Mark(tables.LONGER, table),
        }
    fig = _dots(marks_by_title)
    for axes in fig.axes:
        axes.set_xscale("function", functions=_SQUARE_ROOT_SCALE)
        axes.set(xlim=(-0.001, 1.02), xticks=_TICKS_OF_SHARES)
        axes.set_xticklabels(map("{:g}".format, _TICKS_OF_SHARES))
    for axes in fig.axes[: len(marks_by_title)]:
        axes.set_xlabel("share left of the old fact (IFR)", fontsize=8)
    caption = _edits_footer(
        shown_runs,
        "at most 1 an edit; square-root scale",
        "significant: p < 0.05 after Holm's correction",
        *_empty_rows_in_words(table_by_model),
    )
    return style.with_caption(fig, _more_left_in_words(shown_runs, rule, mode), caption)


def _more_left_in_words(runs: Sequence[Run], rule: Known, mode: str) -> str:
    """In how many tests more is left along chains than at the direct question."""
    tests = tables.longer_table(_terms_without_app(runs, rule), mode=mode).table
    more_count = (tests["Holm"] == "more").sum()
    return (
        "More of the old fact is left along chains than at the direct question: significantly for"
        f" {more_count} of {len(tests)} pairs of a model and a method"
    )


def _without_twins(table: Table) -> Table:
    """Rows of methods, without those that make another one's updates where each edit is alone."""
    return table[table["method"].isin(distinct(table["method"]))]


def _by_size(runs: Sequence[Run]) -> list[Run]:
    """The runs of packaged models from the smallest to the largest, then the others."""
    return sorted(runs, key=lambda run: (_order_of_size(run.about.source["model"]), run.name))


@_recalled_graphs("06_ifr_by_length")
def ifr_by_length(runs: Sequence[Run], *, rule: Known = DEFAULT) -> Figure:
    """IFR, what is left of the old fact, along chains of one to five steps, and the paper's (Figure 5)."""
    shown_runs = _by_size(runs)
    ours = {}
    for run in shown_runs:
        table = tables.length_table(_terms_without_app([run], rule), mode="independent")
        ours[f"{model_of(run)}\nown graph"] = _with_enough_edits(_without_twins(table))
    papers = {
        f"{model}\nthe paper, pooled": of_model
        for model, of_model in tables.paper_lengths().groupby("model")
    }
    fig, grid = _grid(len(ours) + len(papers))
    for axes, (title, table) in zip(grid, {**ours, **papers}.items(), strict=True):
        _draw_lengths(axes, table)
        axes.set_title(title, fontsize=8)
        axes.set_xlabel("steps of the chain")
    for axes in grid:
        of_row = axes.get_shared_y_axes().get_siblings(axes)
        axes.set_ylim(0, min(1, 1.2 * max(panel.dataLim.y1 for panel in of_row)))
    fig.supylabel("IFR (square-root scale)", fontsize=9)
    _legend(fig, grid)
    ours_in_words, papers_in_words = (
        f"{sum(is_highest)} of {len(is_highest)}"
        for is_highest in map(_highest_at_two_or_three, (ours, papers))
    )
    finding = (
        f"Most is left (IFR) along chains of two or three steps for {ours_in_words} pairs of a model and a"
        f" method, and {papers_in_words} in the paper (not tested)"
    )
    our_methods = {method for table in ours.values() for method in table["method"]}
    paper_methods = {method for table in papers.values() for method in table["method"]}
    of_paper_alone = sorted(method_label(method) for method in paper_methods - our_methods)
    notes = (
        f"above: edits with such a chain (no mark below {_FEWEST_EDITS})",
        "the paper gives no n",
        *([f"{', '.join(of_paper_alone)}: the paper's"] if of_paper_alone else []),
    )
    return style.with_caption(fig, finding, _edits_footer(shown_runs, *notes))


def _with_enough_edits(table: Table) -> Table:
    """The table without means of fewer than ``_FEWEST_EDITS`` edits."""
    table = table.copy()
    for step in _STEPS:
        too_few = table[f"{step} edits"].astype(int) < _FEWEST_EDITS
        table.loc[too_few, [step, f"{step} low", f"{step} high"]] = np.nan
    return table


def _highest_at_two_or_three(tables_by_title: Mapping[str, Table]) -> list[bool]:
    """Of each method of each panel, whether its IFR is highest along chains of two or three steps."""
    lengths = [table[_STEPS].astype(float) for table in tables_by_title.values()]
    return pd.concat(lengths).idxmax(axis=1).isin(["2", "3"]).tolist()


def _draw_lengths(axes: Axes, table: Table) -> None:
    """A line a method over the numbers of steps, and the numbers of edits above, where the table has them."""
    for method_index, method in enumerate(table["method"]):
        row_of_method = table.iloc[[method_index]]
        estimates = pd.concat([_intervals(Mark(step, row_of_method)) for step in _STEPS])
        line_style = method_line(method) | {"markersize": 4, "clip_on": False}
        shift = 0.1 * (method_index - (len(table) - 1) / 2)
        style.draw_intervals(axes, np.arange(len(_STEPS)) + shift, estimates, **line_style)
    if f"{_STEPS[0]} edits" in table:
        for method_index, step in enumerate(_STEPS):
            edits = str(int(table[f"{step} edits"].iloc[0]))
            at_top = axes.get_xaxis_transform()
            axes.text(method_index, 1.0, edits, transform=at_top, ha="center", va="top", fontsize=7)
    axes.set_xticks(range(len(_STEPS)), _STEPS)
    axes.set_yscale("function", functions=_SQUARE_ROOT_SCALE)
    axes.set(xlim=(-0.5, len(_STEPS) - 0.5), yticks=_TICKS_OF_SHARES)
    axes.grid(axis="x", visible=False)


@_recalled_graphs("06_what_is_left", options=_BY_MODE)
def what_is_left(
    runs: Sequence[Run], *, mode: str = "independent", rule: Known = DEFAULT
) -> Figure:
    """What an edit leaves of three kinds of facts, and the share of edits that are deep (Definition 2)."""
    shown_runs = _by_size(runs)
    measures = (metrics.DEEP, *tables.FACT_KINDS)
    table = tables.measure_table(_terms_without_app(shown_runs, rule), measures, mode=mode)
    labels = {
        "the edited fact": metrics.DIRECT,
        "other facts\nabout its subject": metrics.OWN,
        "facts about\nother subjects (CKP)": "CKP",
    }
    marks_by_title = {}
    table_by_model = {}
    for run in shown_runs:
        model = model_of(run)
        of_model = table[table["model"] == model]
        if mode == "independent":
            of_model = _without_twins(of_model)
        table_by_model[model] = of_model
        # The line below is for the heading of the column at the right.
        marks_by_title[f"{model}\n"] = {
            label: Mark(name, of_model) for label, name in labels.items()
        }
    fig = _dots(marks_by_title, xlim=(-0.04, 1.3), xticks=(0, 0.5, 1))
    labels_of_rows = [label.get_text() for label in fig.axes[0].get_yticklabels()]
    for axes, of_model in zip(fig.axes, table_by_model.values(), strict=False):
        _write_deep_shares(axes, of_model, labels_of_rows)
        axes.set_xlabel("share of probability left", fontsize=8)
    notes = (
        "at most 1 an edit",
        "no chain left: edits with no known chain of two or more steps (“deep”)",
        *_empty_rows_in_words(table_by_model),
    )
    caption = _edits_footer(shown_runs, *notes, mode=mode)
    return style.with_caption(fig, _two_losses_in_words(table), caption)


def _empty_rows_in_words(table_by_model: Mapping[str, Table]) -> list[str]:
    """Whether a model has no edits by some of the methods that have a row."""
    methods_by_model = {model: set(table["method"]) for model, table in table_by_model.items()}
    all_methods = set().union(*methods_by_model.values())
    is_incomplete = any(methods != all_methods for methods in methods_by_model.values())
    return ["empty rows: not run"] if is_incomplete else []


def _write_deep_shares(axes: Axes, table: Table, labels_of_rows: Sequence[str]) -> None:
    """The share of deep edits in percent, at the right of each method's row."""
    text_style: dict[str, Any] = {"ha": "right", "va": "center", "fontsize": 8, "color": "0.25"}
    axes.text(1.29, -0.72, "no chain left", **text_style)
    for method, share in zip(table["method"], table[metrics.DEEP], strict=True):
        row = labels_of_rows.index(method_label(str(method)))
        axes.text(1.29, row, f"{100 * share:.0f}\u00a0%", **text_style)


def _two_losses_in_words(table: Table) -> str:
    """Which methods leave less of the subject's facts than of others, and which more, in all models.

    Less and more mean that the two intervals are apart.
    """
    is_less = table[f"{metrics.OWN} high"] < table["CKP low"]
    is_more = table[f"{metrics.OWN} low"] > table["CKP high"]
    methods_that_lose = {}
    for kind, is_so in (("about the edited subject", is_less), ("about other subjects", is_more)):
        so_in_all = is_so.groupby(table["method"], sort=False).all()
        methods = distinct(str(method) for method in so_in_all.index[so_in_all])
        if methods:
            methods_that_lose[kind] = _joined_by_and([method_label(method) for method in methods])
    if not methods_that_lose:
        return "No method erases more facts of one kind than of the other on all models"
    clauses = [f"{methods} erase more facts {kind}" for kind, methods in methods_that_lose.items()]
    return "; ".join(clauses)


def _joined_by_and(words: Sequence[str]) -> str:
    """Words with commas, and before the last "and"."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


@_recalled_graphs("06_two_ways")
def two_ways(runs: Sequence[Run], *, mode: str = "independent", rule: Known = DEFAULT) -> Figure:
    """First links against later links of chains that are known after an edit: two ways to break a graph."""
    runs_by_size = _by_size(runs)
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
        counts_in_words.append(" to ".join(map(str, range_ends)))
    fig, grid = _grid(len(estimates_by_model), row_height=2.8)
    for axes, (model, estimates_by_method) in zip(grid, estimates_by_model.items(), strict=True):
        _draw_two_ways(axes, estimates_by_method, _words_on_hidden(estimates_by_model))
        axes.set_title(model, fontsize=9)
        axes.set_xlabel("share of first links known", fontsize=8)
        axes.grid(visible=False)  # behind words
    grid[0].set_ylabel("share of later links known", fontsize=8)
    _legend(fig, grid)
    note = "share of the links known before; first links: facts about the edited subject"
    caption = _edits_footer(runs_by_size, note, counts=counts_in_words, mode=mode, with_app=True)
    return style.with_caption(fig, _two_ways_in_words(estimates_by_model), caption)


def _words_on_hidden(
    estimates_by_model: Mapping[str, Mapping[str, Mapping[str, Estimate]]],
) -> dict[str, str]:
    """Of each method whose mark is under the same other one's on every model: below which, in words."""
    hidden: dict[str, str] = {}
    for methods in ([*by_method] for by_method in estimates_by_model.values()):
        for number, method in enumerate(methods):
            for later in methods[number + 1 :]:
                distances = [
                    abs(by_method[method][kind].mean - by_method[later][kind].mean)
                    for by_method in estimates_by_model.values()
                    if {method, later} <= set(by_method)
                    for kind in (links.FIRST, links.LATER)
                ]
                if max(distances) < _MARK_WIDTH:
                    hidden.setdefault(method, f"\n(under {method_label(later)})")
    return hidden


_MARK_WIDTH = 0.05  # in shares, of a mark in a panel


def _draw_two_ways(
    axes: Axes,
    estimates_by_method: Mapping[str, Mapping[str, Estimate]],
    words_on_hidden: Mapping[str, str],
) -> None:
    """A point a method with both its intervals, over a diagonal on which both kinds of links suffer alike."""
    axes.plot([0, 1], [0, 1], color="0.8", linewidth=0.8, zorder=0)
    word_style: dict[str, Any] = {"fontsize": 7, "color": "0.4", "style": "italic"}
    axes.text(0.01, 0.42, "the subject\nis forgotten", **word_style)
    axes.text(1.02, -0.02, "facts elsewhere\nare forgotten", ha="right", **word_style)
    for method, estimates in estimates_by_method.items():
        label = f"{method_label(method)}{words_on_hidden.get(method, '')}"
        point_style = method_line(method) | {"linestyle": "", "markersize": 6, "label": label}
        first = Table([vars(estimates[links.FIRST])])
        later = Table([vars(estimates[links.LATER])])
        style.draw_intervals(axes, later["mean"], first, across=True, **point_style)
        style.draw_intervals(axes, first["mean"], later, **(point_style | {"label": None}))
    axes.set(xlim=(-0.04, 1.04), ylim=(-0.04, 1.04), xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
    axes.set_aspect("equal")


def _two_ways_in_words(
    estimates_by_model: Mapping[str, Mapping[str, Mapping[str, Estimate]]],
) -> str:
    """Which kind of link the smallest model loses after MEMIT and, where it is stored, after FT-M."""
    model, estimates_by_method = next(iter(estimates_by_model.items()))
    clauses = []
    for method in ("memit", "ft-m"):
        if method in estimates_by_method:
            estimates = estimates_by_method[method]
            lost, left = sorted((links.FIRST, links.LATER), key=lambda kind: estimates[kind].mean)
            lost_share, left_share = (100 * estimates[kind].mean for kind in (lost, left))
            # A line does not end before the percent sign.
            clauses.append(
                f"{method_label(method)} loses more {lost} ({lost_share:.0f}\u00a0% known, of {left}"
                f" {left_share:.0f}\u00a0%)"
            )
    return f"Two ways to break a graph: on {model} {', '.join(clauses)}"


@figure("06_recalled_links", alone=True)
def recalled_links() -> Figure:
    """Links that each stage of the packaged recalled graphs left, in percent of those proposed."""
    links_left = _links_left()
    fig, axes = plt.subplots(figsize=(7, 3.4))
    _draw_links_left(axes, links_left)
    caption = (
        "likely: the object has a probability of at least 0.05; asked: likely, and may be on a chain;"
        " validated: named after three solved examples; edits are of the last stage's links"
    )
    return style.with_caption(fig, _confirmed_in_words(links_left), caption)


def _draw_links_left(axes: Axes, links_left: Mapping[str, pd.Series]) -> None:
    """A group of bars a stage, and in it a bar a model with its number of links."""
    axes.grid(axis="y", visible=False)
    for model_index, (model, links_by_stage) in enumerate(links_left.items()):
        aside = 0.26 * (model_index - (len(links_left) - 1) / 2)
        heights = np.arange(len(links_by_stage)) + aside
        shares = 100 * links_by_stage / links_by_stage["proposed"]
        bars = axes.barh(heights, shares, 0.24, color=style.MODEL_COLOURS[model_index], label=model)
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
    return f"Models recall few of the links that fact stores propose; validated: {', '.join(confirmed)}"


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
    """A figure of as many panels; those of a row share their scales. ``row_height`` is in inches."""
    row_count = -(-panel_count // columns)
    fig, grid = plt.subplots(
        row_count,
        columns,
        figsize=(7.9, row_height * row_count + 0.8),
        sharex=True,
        sharey="row",
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


def _dots(marks_by_title: Mapping[str, Mapping[str, Mark]], **limits: Any) -> Figure:
    """A panel for each title with a row a method, and in each row a dot for each labelled mark.

    Rows are shaded in turn, so that a method's dots are seen as one row.
    """
    all_rows = pd.concat(
        [mark.table for marks in marks_by_title.values() for mark in marks.values()]
    )
    methods = tables.in_papers_order(all_rows.assign(model=""))["method"].unique().tolist()
    row_height = max(2.2, 0.45 * len(methods))
    fig, grid = _grid(len(marks_by_title), row_height=row_height)
    for axes, (title, marks) in zip(grid, marks_by_title.items(), strict=True):
        for mark_index, (label, mark) in enumerate(marks.items()):
            shift = 0.25 * (mark_index - (len(marks) - 1) / 2)
            style.draw_intervals(
                axes,
                mark.table["method"].map(methods.index) + shift,
                _intervals(mark),
                across=True,
                label=label,
                markersize=4,
                **style.condition_look(mark_index),
            )
        for row in range(0, len(methods), 2):
            axes.axhspan(row - 0.5, row + 0.5, color="0.95", zorder=0)
        axes.grid(axis="y", visible=False)
        axes.set_yticks(range(len(methods)), [method_label(method) for method in methods])
        axes.set(ylim=(len(methods) - 0.5, -0.5), **limits)
        axes.set_title(title, fontsize=9, loc="left")
    _legend(fig, grid)
    return fig
