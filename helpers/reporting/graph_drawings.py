"""Drawings of implication chains and knowledge graphs, in the manner of ThinkEdit's figures."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import networkx as nx
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from helpers.reporting.style import PALETTE, use_style

_KEPT, _LOST = PALETTE[2], PALETTE[3]
STATES: dict[str, tuple[Any, Any]] = {
    "kept": (_KEPT, "-"),
    "lost": (_LOST, "--"),
    "unknown": ("0.75", ":"),
}


def chain_samples(chains: Sequence[Sequence[str]], retained: Sequence[Sequence[float]]) -> Figure:
    """Sample chains with each step's retained ratio p'/p below its link (the paper's Figure 3).

    Args:
        chains: entities passed, one list per chain.
        retained: ratio of each step, one list per chain.
    """
    use_style()
    widest = max(len(chain) for chain in chains)
    figure, axes = plt.subplots(figsize=(1.45 * widest, 0.75 * len(chains) + 0.3))
    for row, (names, ratios) in enumerate(zip(chains, retained, strict=True)):
        for column, name in enumerate(names):
            axes.text(
                column,
                -row,
                textwrap.fill(name, 14),
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
    return figure


def knowledge_graph(
    graph: nx.DiGraph,
    start: str,
    goal: str,
    *,
    states: Mapping[tuple[str, str], str] | None = None,
    title: str = "",
    axes: Axes | None = None,
) -> Figure:
    """A graph from the edited subject (left) to the original object (right; Figures 15–20).

    Args:
        graph: nodes are case-folded names with a ``label``.
        start: the edited subject, drawn blue.
        goal: the original object, drawn red.
        states: per edge "kept" (known before and after), "lost" (known before only) or "unknown"
            (never known); without it, all edges look the same.
        title: above the drawing.
        axes: where to draw; a new figure otherwise.
    """
    use_style()
    if axes is None:
        _, axes = plt.subplots(figsize=(6.6, 0.28 * len(graph) + 2.2))
    places = _layers(graph, start.casefold(), goal.casefold())
    for state, (colour, line) in STATES.items():
        edges = [edge for edge in graph.edges if (states or {}).get(edge, "kept") == state]
        nx.draw_networkx_edges(
            graph,
            places,
            edgelist=edges,
            ax=axes,
            edge_color=[colour],
            style=line,
            arrowsize=8,
            node_size=900,
            connectionstyle="arc3,rad=0.12",
        )
    for node, (x, y) in places.items():
        ends = {start.casefold(): PALETTE[0], goal.casefold(): PALETTE[3]}
        axes.text(
            x,
            y,
            textwrap.fill(graph.nodes[node]["label"], 16),
            ha="center",
            va="center",
            fontsize=7,
            bbox={"boxstyle": "round", "facecolor": "white", "edgecolor": ends.get(node, "0.4")},
        )
    if states is not None:
        handles = [Line2D([], [], color=c, linestyle=s, label=n) for n, (c, s) in STATES.items()]
        axes.legend(handles=handles, loc="lower right", ncols=3)
    axes.set_title(title, loc="left")
    axes.axis("off")
    axes.margins(0.12)
    figure = axes.get_figure()
    assert isinstance(figure, Figure)
    return figure


def graph_pair(
    graph: nx.DiGraph,
    start: str,
    goal: str,
    *,
    before: Mapping[tuple[str, str], str],
    after: Mapping[tuple[str, str], str],
) -> Figure:
    """The same graph before and after the edit, one above the other."""
    use_style()
    figure, (upper, lower) = plt.subplots(2, 1, figsize=(6.8, 0.5 * len(graph) + 3.2))
    knowledge_graph(graph, start, goal, states=before, title="before the edit", axes=upper)
    knowledge_graph(graph, start, goal, states=after, title="after the edit", axes=lower)
    return figure


def _layers(graph: nx.DiGraph, start: str, goal: str) -> dict[str, tuple[float, float]]:
    """Columns by distance from the subject, the object alone at the right, rows spread evenly.

    Every other row stands back, so that edges inside a column pass beside the names between.
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
