"""One edit's ``facts`` (``metrics.facts_table``) looked at closely: what is lost, and its graph drawn."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import networkx as nx
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from helpers.records import comparable
from helpers.results.figure import figure
from helpers.results.style import PALETTE, with_caption, without_mathematics
from helpers.thinkedit import metrics
from helpers.thinkedit.graph import Triplet, edited_triplet, graph_of_facts, is_deep_edited
from helpers.thinkedit.grow.pipeline import Growth
from helpers.thinkedit.knowgic import EditedGraph

EdgeStates = Mapping[tuple[str, str], str]
_KEPT, _LOST = PALETTE[2], PALETTE[3]
STATES: dict[str, tuple[Any, Any]] = {
    "known": (_KEPT, "-"),
    "kept": (_KEPT, "-"),
    "lost": (_LOST, "--"),
    "unknown": ("0.75", ":"),
}
_BOX: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7}
_ARROW: dict[str, Any] = {
    "arrowstyle": "-|>",
    "mutation_scale": 8,
    "shrinkA": 0,
    "shrinkB": 1,
    "zorder": 3,
}


def edge_states(edit: EditedGraph, facts: pd.DataFrame) -> dict[str, EdgeStates]:
    """State of every edge "before" ("known", "unknown") and "after" (``state_of``), by any fact of it."""
    keys = [Triplet.of(fact).key for fact in edit.facts]
    mine = facts[facts["case_id"] == edit.case_id].sort_values("item")
    edges = mine.assign(subject=[k[0] for k in keys], object=[k[2] for k in keys])
    groups = edges.groupby(["subject", "object"], sort=False)
    known = groups[["known_before", "known_after"]].any()
    before = {}
    after = {}
    for (subject, goal), once, still in known.itertuples():
        before[subject, goal] = "known" if once else "unknown"
        after[subject, goal] = state_words(once, still)
    return {"before": before, "after": after}


def state_words(once: bool, still: bool) -> str:
    """What an edit did to a fact that was known ``once`` and is ``still``, or not."""
    return "unknown" if not once else "kept" if still else "lost"


def deep_edited_up_to(edit: EditedGraph, facts: pd.DataFrame, *, steps: int = 5) -> dict[int, bool]:
    """For each number of steps, whether the known facts after the edit no longer imply the old one."""
    known = facts[(facts["case_id"] == edit.case_id) & facts["known_after"]]
    left = graph_of_facts([edit.facts[item] for item in known["item"]])
    target = edited_triplet(edit)
    return {n: is_deep_edited(left, target, steps=n) for n in range(1, steps + 1)}


def step_table(edit: EditedGraph, facts: pd.DataFrame) -> pd.DataFrame:
    """Chains, deducible and active ones, and IFR by chain length (the paper's Table 2, for any edit)."""
    folded = metrics.chain_table(facts, metrics.chain_index([edit]))
    columns = {"kept": "deducible before", "active": "active after", "value": "IFR"}
    return metrics.recovery_by_steps(folded).rename(columns=columns)


def ckp_of_edit(edit: EditedGraph, facts: pd.DataFrame) -> tuple[float, int]:
    """CKP of the edit (1 without known facts, as defined), and the facts behind it."""
    terms = metrics.terms_of(facts, metrics.chain_index([edit]))
    ratios = terms.loc[terms["measure"] == "CKP", "ratio"]
    return float(ratios.mean()) if len(ratios) else 1.0, len(ratios)


def strongest_chains(edit: EditedGraph, facts: pd.DataFrame) -> dict[tuple[str, ...], list[float]]:
    """The deducible chain of each length that kept most: entities passed, and each step's p'/p, at most 1."""
    index = metrics.chain_index([edit])
    chains = metrics.chain_table(facts, index).query("kept")
    best = chains.sort_values("ratio", ascending=False).drop_duplicates("length")
    steps = index.merge(facts, on=["case_id", "item"]).sort_values("step")
    left = (steps["after"] / steps["before"]).clip(upper=1)
    numbers = best.sort_values("length")["chain"]
    return {edit.chains[n].nodes: left[steps["chain"] == n].tolist() for n in numbers}


@figure("06_chain_samples")
def chain_samples(edit: EditedGraph, facts: pd.DataFrame, *, caption: str = "") -> Figure:
    """Of each length the deducible chain that keeps most, with each link's p'/p (Figures 2 and 3)."""
    chains = strongest_chains(edit, facts)
    widest = max(map(len, chains), default=1)
    fig, axes = plt.subplots(figsize=(1.45 * widest, 0.75 * len(chains) + 0.3))
    box = {"boxstyle": "round", "facecolor": "white", "edgecolor": _KEPT}
    for row, (names, ratios) in enumerate(chains.items()):
        for column, name in enumerate(names):
            axes.text(column, -row, without_mathematics(textwrap.fill(name, 14)), bbox=box, **_BOX)
        for column, ratio in enumerate(ratios):
            arrow = {"arrowstyle": "->", "color": _KEPT if ratio >= 0.5 else _LOST}
            axes.annotate("", (column + 0.68, -row), (column + 0.32, -row), arrowprops=arrow)
            axes.text(column + 0.5, -row - 0.2, f"{ratio:.2f}", **_BOX | {"va": "top"})
    axes.set(xlim=(-0.6, widest - 0.4), ylim=(-len(chains) + 0.4, 0.6))
    axes.axis("off")
    steps = [ratio for ratios in chains.values() for ratio in ratios]
    finding = f"{sum(ratio < 0.5 for ratio in steps)} of {len(steps)} steps keep less than half"
    note = "Share of each step's probability that is left; orange: below half"
    return with_caption(fig, f"{finding} of their probability", f"{caption}\n{note}")


def draw_graph(
    graph: nx.DiGraph, start: str, goal: str, axes: Axes, states: EdgeStates | None = None
) -> None:
    """Draw a graph from its subject (blue) to its object (red), by one of ``edge_states`` (Figures 15–20)."""
    coordinates = _places_of_nodes(graph, comparable(start), comparable(goal))
    axes.scatter(*zip(*coordinates.values(), strict=True), alpha=0)
    axes.margins(x=0.12, y=0.4)
    axes.autoscale_view()
    axes.autoscale(False)
    colour_of_end = {comparable(start): PALETTE[0], comparable(goal): PALETTE[3]}
    box_of_node = {}
    for node, (x, y) in coordinates.items():
        box_style = {
            "boxstyle": "round",
            "facecolor": "white",
            "edgecolor": colour_of_end.get(node, "0.4"),
        }
        node_label = without_mathematics(textwrap.fill(graph.nodes[node]["label"], 16))
        # Before the arrows, which end at its box once that is drawn, and again over those that pass.
        below_arrows = axes.text(x, y, node_label, zorder=2, bbox=box_style, **_BOX)
        axes.text(x, y, node_label, zorder=4, bbox=box_style, **_BOX)
        box_of_node[node] = below_arrows.get_bbox_patch()
    for tail, head in graph.edges:
        colour, line_style = STATES[(states or {}).get((tail, head), "kept")]
        bend = (
            0.22 if (tail, head) == tuple(colour_of_end) else 0.12
        )  # the direct link keeps clear of boxes
        arrow_style = _ARROW | {
            "color": colour,
            "linestyle": line_style,
            "connectionstyle": f"arc3,rad={bend}",
        }
        arrow_ends: Any = {"patchA": box_of_node[tail], "patchB": box_of_node[head]}
        axes.add_patch(
            FancyArrowPatch(coordinates[tail], coordinates[head], **arrow_ends, **arrow_style)
        )
    if states is not None:
        for state in sorted({states[edge] for edge in graph.edges}, key=list(STATES).index):
            colour, line_style = STATES[state]
            axes.plot([], [], color=colour, linestyle=line_style, label=state)
        axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3)
    axes.axis("off")


@figure("06_grown")
def grown_graph(growth: Growth, *, caption: str = "") -> Figure:
    """The links of a grown graph that its chains pass; further links lead nowhere and are counted."""
    links = [step.key for chain in growth.chains for step in chain]
    passed = growth.graph.edge_subgraph({(subject, goal) for subject, _, goal in links})
    fig, axes = plt.subplots(figsize=(6.6, 0.28 * len(passed) + 2.2))
    draw_graph(passed, growth.fact.subject, growth.fact.object, axes)
    more = growth.graph.number_of_edges() - passed.number_of_edges()
    finding = f"{len(growth.chains)} chains lead from {growth.fact.subject} to {growth.fact.object}"
    return with_caption(fig, finding, f"{caption}; {more} further links are on no chain")


@figure("06_graph_before_and_after")
def graph_pair(edit: EditedGraph, *, caption: str = "", **moments: EdgeStates) -> Figure:
    """The known ways through an edit's graph before and after it.

    ``moments`` are its ``edge_states``.
    """
    ends, after = (comparable(edit.subject), comparable(edit.original)), moments["after"]
    graph = ways(graph_of_facts(edit.facts), moments["before"], *ends)
    fig = Figure(figsize=(6.8, 0.45 * len(graph) + 3.2))  # a panel draws in a thread
    for axes, (moment, states) in zip(fig.subplots(2, 1), moments.items(), strict=True):
        draw_graph(graph, *ends, axes, states)
        axes.set_title(f"{moment} the edit", loc="left")
    left = [after[edge] for edge in graph.edges].count("kept")
    shown = f"{left} of {len(graph.edges)} links towards {edit.original} are known after the edit"
    edited = f"{edit.prompt.replace('{}', edit.subject)} {edit.original} → {edit.new}"
    note = f"Known links that lead there, of {len(after)}. Those kept may be less probable"
    words = f"{edited}\n{caption}\n{note}"
    return with_caption(
        fig, f"{shown}; the direct one is {after.get(ends, 'not among them')}", words
    )


def ways(graph: nx.DiGraph, states: EdgeStates, start: str, goal: str) -> nx.DiGraph:
    """Known links that lead from one node to another; all of the graph where none do."""
    known_links = graph.copy()
    known_links.remove_edges_from([edge for edge in graph.edges if states[edge] != "known"])
    if not nx.has_path(known_links, start, goal):
        return graph
    between = nx.descendants(known_links, start) & nx.ancestors(known_links, goal)
    passed = {start, goal, *between}
    known_links.remove_nodes_from([node for node in graph if node not in passed])
    return known_links


@figure("06_case", each=("number", lambda run: ()))
def stored_case(
    edit: EditedGraph, facts: pd.DataFrame, *, number: str, caption: str = ""
) -> Figure:
    """The known ways through a stored edit's graph before and after it (Figures 15–20)."""
    return graph_pair(edit, caption=f"case {number}, {caption}", **edge_states(edit, facts))


def _places_of_nodes(graph: nx.DiGraph, start: str, goal: str) -> dict[str, tuple[float, float]]:
    """Columns by distance from the subject, the object alone at the right, every other row indented."""
    distance = nx.single_source_shortest_path_length(graph, start)
    far = max((d for node, d in distance.items() if node != goal), default=0)
    columns: dict[int, list[str]] = {}
    for node in graph:
        column = far + 1 if node == goal else distance.get(node, far)
        columns.setdefault(column, []).append(node)
    places = {}
    for column, nodes in columns.items():
        for row, node in enumerate(nodes):
            aside = 0.2 * (-1) ** row if len(nodes) > 1 else 0.0
            places[node] = column + aside, (len(nodes) - 1) / 2 - row + 0.25 * (column % 2)
    return places
