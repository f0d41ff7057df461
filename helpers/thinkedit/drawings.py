"""Drawings of implication chains and knowledge graphs, in the manner of ThinkEdit's figures."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch

from helpers.results.figure import figure
from helpers.results.style import PALETTE, captioned, plain, told, use_style
from helpers.thinkedit.case import edge_states
from helpers.thinkedit.graph import graph_of_facts
from helpers.thinkedit.grow.pipeline import Growth
from helpers.thinkedit.knowgic import Edit

_KEPT, _LOST = PALETTE[2], PALETTE[3]
STATES: dict[str, tuple[Any, Any]] = {
    "known": (_KEPT, "-"),
    "kept": (_KEPT, "-"),
    "lost": (_LOST, "--"),
    "unknown": ("0.75", ":"),
}

_BENDS = (0.12, -0.12, 0.25, -0.25, 0.4, -0.4)  # from the slightest
_NAME = np.array([0.45, 0.13])  # half a name's box, inches


@figure("06_chain_samples", title="The best-surviving chain of each length")
def chain_samples(
    chains: Sequence[Sequence[str]], retained: Sequence[Sequence[float]], *, caption: str = ""
) -> Figure:
    """Sample chains with each step's ``retained`` ratio p'/p below its link (the paper's Figure 3)."""
    use_style()
    widest = max(len(chain) for chain in chains)
    figure, axes = plt.subplots(figsize=(1.45 * widest, 0.75 * len(chains) + 0.3))
    for row, (names, ratios) in enumerate(zip(chains, retained, strict=True)):
        for column, name in enumerate(names):
            axes.text(
                column,
                -row,
                plain(textwrap.fill(name, 14)),
                ha="center",
                va="center",
                fontsize=7,
                bbox={"boxstyle": "round", "facecolor": "white", "edgecolor": _KEPT},
            )
        for column, ratio in enumerate(ratios):
            colour = _KEPT if ratio >= 0.5 else _LOST
            arrow = {"arrowstyle": "->", "color": colour}
            axes.annotate("", (column + 0.68, -row), (column + 0.32, -row), arrowprops=arrow)
            axes.text(column + 0.5, -row - 0.2, f"{ratio:.2f}", ha="center", va="top", fontsize=7)
    axes.set(xlim=(-0.6, widest - 0.4), ylim=(-len(chains) + 0.4, 0.6))
    axes.axis("off")
    steps = [ratio for ratios in retained for ratio in ratios]
    finding = f"{sum(ratio < 0.5 for ratio in steps)} of {len(steps)} steps keep less than half"
    note = "Share of each step's probability that is left; orange: below half"
    return told(figure, f"{finding} of their probability", f"{caption}\n{note}")


def knowledge_graph(
    graph: nx.DiGraph,
    start: str,
    goal: str,
    *,
    states: Mapping[tuple[str, str], str] | None = None,
    title: str = "",
    axes: Axes | None = None,
) -> Figure:
    """A graph from the edited subject (left, blue) to the original object (right, red; Figures 15–20).

    ``states`` are ``case.edge_states`` of one moment; without them, all edges look the same. Without
    ``axes`` it is a figure of its own.
    """
    use_style()
    if axes is None:
        _, axes = plt.subplots(figsize=(6.6, 0.28 * len(graph) + 2.2))
    places = _layers(graph, start.casefold(), goal.casefold())
    _frame(axes, places)
    ends = {start.casefold(): PALETTE[0], goal.casefold(): PALETTE[3]}
    boxes = {
        node: axes.text(
            x,
            y,
            plain(textwrap.fill(graph.nodes[node]["label"], 16)),
            ha="center",
            va="center",
            fontsize=7,
            zorder=2,
            bbox={"boxstyle": "round", "facecolor": "white", "edgecolor": ends.get(node, "0.4")},
        ).get_bbox_patch()
        for node, (x, y) in places.items()
    }
    for edge in graph.edges:
        colour, line = STATES[(states or {}).get(edge, "kept")]
        axes.add_patch(
            FancyArrowPatch(
                places[edge[0]],
                places[edge[1]],
                connectionstyle=f"arc3,rad={_bend(axes, places, edge)}",
                arrowstyle="-|>",
                mutation_scale=8,
                color=colour,
                linestyle=line,
                patchA=boxes[edge[0]],
                patchB=boxes[edge[1]],
                shrinkA=0,
                shrinkB=1,
                zorder=3,  # drawn after the names, whose boxes are only then placed
            )
        )
    if states is not None:
        shown = {name: look for name, look in STATES.items() if name in set(states.values())}
        handles = [Line2D([], [], color=c, linestyle=s, label=n) for n, (c, s) in shown.items()]
        axes.legend(handles=handles, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3)
    axes.set_title(plain(title), loc="left")
    axes.axis("off")
    figure = axes.get_figure()
    assert isinstance(figure, Figure)
    return figure


@figure("06_grown", title="A graph grown from the model")
def grown_graph(growth: Growth, *, caption: str = "") -> Figure:
    """The links of a grown graph that its chains pass; further links lead nowhere and are counted."""
    links = [step.key for chain in growth.chains for step in chain]
    passed = growth.graph.edge_subgraph({(subject, goal) for subject, _, goal in links})
    drawn = knowledge_graph(passed, growth.fact.subject, growth.fact.object)
    more = growth.graph.number_of_edges() - passed.number_of_edges()
    finding = f"{len(growth.chains)} chains lead from {growth.fact.subject} to {growth.fact.object}"
    return told(drawn, finding, f"{caption}; {more} further links are on no chain")


@figure("06_graph_before_and_after", title="What is known before and after one edit")
def graph_pair(
    graph: nx.DiGraph,
    start: str,
    goal: str,
    *,
    before: Mapping[tuple[str, str], str],
    after: Mapping[tuple[str, str], str],
    caption: str = "",
) -> Figure:
    """The same graph before and after the edit, one above the other, under model, edit and method."""
    use_style()
    figure = Figure(figsize=(6.8, 0.5 * len(graph) + 3.2))  # a panel draws in a thread
    upper, lower = figure.subplots(2, 1)
    knowledge_graph(graph, start, goal, states=before, title="before the edit", axes=upper)
    knowledge_graph(graph, start, goal, states=after, title="after the edit", axes=lower)
    return captioned(figure, caption)


@figure("06_case", title="A stored edit's graph", each=("number", lambda run: ()))
def stored_case(edit: Edit, facts: pd.DataFrame, *, number: str, caption: str = "") -> Figure:
    """What is known of an edit's graph before and after it, from published scores (Figures 15–20).

    ``facts`` are of ``evaluation.facts_of``; the edit's ``number`` ends the figure's name.
    """
    before, after = edge_states(edit, facts).values()
    known, kept = list(before.values()).count("known"), list(after.values()).count("kept")
    finding = f"{known} of {len(before)} links are known before the edit, {kept} of them after"
    graph = graph_of_facts(edit.facts)
    drawn = graph_pair(graph, edit.subject, edit.original, before=before, after=after)
    return told(drawn, finding, f"{caption}, case {number}")


def _frame(axes: Axes, places: Mapping[str, tuple[float, float]]) -> None:
    """Fix the limits, so that places on the page are known before edges are drawn."""
    axes.scatter(*zip(*places.values(), strict=True), alpha=0)
    axes.margins(0.12)
    axes.autoscale_view()
    axes.autoscale(False)


def _bend(axes: Axes, places: Mapping[str, tuple[float, float]], edge: tuple[str, str]) -> float:
    """The slightest bend of an edge that keeps clear of the names between its ends."""
    page = {node: axes.transData.transform(place) for node, place in places.items()}
    start, end = page[edge[0]], page[edge[1]]
    others = np.array([point for node, point in page.items() if node not in edge])
    if not len(others):
        return _BENDS[0]
    way = np.linspace(0, 1, 40)[:, None]

    def crossed(bend: float) -> int:
        across = np.array([end[1] - start[1], start[0] - end[0]])
        corner = (start + end) / 2 + bend * across
        curve = (1 - way) ** 2 * start + 2 * way * (1 - way) * corner + way**2 * end
        apart = np.abs(curve[:, None] - others[None])
        half = _NAME * axes.get_figure().dpi  # type: ignore[union-attr]
        return int((apart < half).all(axis=2).any(axis=0).sum())

    return min(_BENDS, key=crossed)


def _layers(graph: nx.DiGraph, start: str, goal: str) -> dict[str, tuple[float, float]]:
    """Columns by distance from the subject, the object alone at the right, rows spread evenly.

    Every other row is indented, so that edges inside a column pass between the names.
    """
    distance = nx.single_source_shortest_path_length(graph, start)
    far = max((d for node, d in distance.items() if node != goal), default=0)
    columns: dict[int, list[str]] = {}
    for node in graph:
        column = far + 1 if node == goal else distance.get(node, far)
        columns.setdefault(column, []).append(node)
    return {
        node: (
            column + (0.2 * (-1) ** row if len(nodes) > 1 else 0.0),
            (len(nodes) - 1) / 2 - row + 0.25 * (column % 2),
        )
        for column, nodes in columns.items()
        for row, node in enumerate(nodes)
    }
