"""One edit's ``facts`` (``metrics.facts_table``) looked at closely: what is lost, and its graph drawn."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import networkx as nx
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from helpers.records import by_case_id, comparable
from helpers.results.archive import Run
from helpers.results.figure import Option, figure
from helpers.results.style import PALETTE, with_caption, without_mathematics
from helpers.thinkedit import metrics
from helpers.thinkedit.graph import Triplet, edited_triplet, graph_of_facts, is_deep_edited
from helpers.thinkedit.grow.pipeline import Growth
from helpers.thinkedit.knowgic import EditedGraph, load_edited_graphs
from helpers.thinkedit.modes import MODES
from helpers.thinkedit.tables import caption_of_runs, facts_of, is_recalled

EdgeStates = Mapping[tuple[str, str], str]
_KEPT, _LOST = PALETTE[2], PALETTE[3]
STATES: dict[str, tuple[Any, Any]] = {
    "known": (_KEPT, "-"),
    "kept": (_KEPT, "-"),
    "lost": (_LOST, "--"),
    "unknown": ("0.75", ":"),
}
_CENTRED_TEXT: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7}
_ARROW_STYLE: dict[str, Any] = {
    "arrowstyle": "-|>",
    "mutation_scale": 8,
    "shrinkA": 0,
    "shrinkB": 1,
    "zorder": 3,
}


def edge_states(edit: EditedGraph, fact_probabilities: pd.DataFrame) -> dict[str, EdgeStates]:
    """State of every edge "before" ("known", "unknown") and "after" (``state_of``), by any fact of it."""
    triplet_keys = [Triplet.of(fact).key for fact in edit.facts]
    facts_of_edit = fact_probabilities[fact_probabilities["case_id"] == edit.case_id].sort_values(
        "item"
    )
    subjects = [subject for subject, _, _ in triplet_keys]
    objects = [object_node for _, _, object_node in triplet_keys]
    facts_with_ends = facts_of_edit.assign(subject=subjects, object=objects)
    facts_by_edge = facts_with_ends.groupby(["subject", "object"], sort=False)
    known_by_edge = facts_by_edge[["known_before", "known_after"]].any()
    before = {}
    after = {}
    for (subject_node, object_node), known_before, known_after in known_by_edge.itertuples():
        before[subject_node, object_node] = "known" if known_before else "unknown"
        after[subject_node, object_node] = state_words(known_before, known_after)
    return {"before": before, "after": after}


def state_words(known_before: bool, known_after: bool) -> str:
    """What an edit did to a fact, from whether it was known before and is known after."""
    return "unknown" if not known_before else "kept" if known_after else "lost"


def deep_edited_up_to(
    edit: EditedGraph, fact_probabilities: pd.DataFrame, *, steps: int = 5
) -> dict[int, bool]:
    """For each number of steps, whether the known facts after the edit no longer imply the old one."""
    known_facts = fact_probabilities[
        (fact_probabilities["case_id"] == edit.case_id) & fact_probabilities["known_after"]
    ]
    graph_left = graph_of_facts([edit.facts[item] for item in known_facts["item"]])
    old_fact = edited_triplet(edit)
    return {
        step_limit: is_deep_edited(graph_left, old_fact, steps=step_limit)
        for step_limit in range(1, steps + 1)
    }


def step_table(edit: EditedGraph, fact_probabilities: pd.DataFrame) -> pd.DataFrame:
    """Chains, deducible and active ones, and IFR by chain length (the paper's Table 2, for any edit)."""
    chains = metrics.chain_table(fact_probabilities, metrics.chain_index([edit]))
    column_titles = {"kept": "deducible before", "active": "active after", "value": "IFR"}
    return metrics.recovery_by_steps(chains).rename(columns=column_titles)


def ckp_of_edit(edit: EditedGraph, fact_probabilities: pd.DataFrame) -> tuple[float, int]:
    """CKP of the edit (1 without known facts, as defined), and the facts behind it."""
    terms_of_edit = metrics.terms_of(fact_probabilities, metrics.chain_index([edit]))
    preserved_ratios = terms_of_edit.loc[terms_of_edit["measure"] == "CKP", "ratio"]
    return float(preserved_ratios.mean()) if len(preserved_ratios) else 1.0, len(preserved_ratios)


def strongest_chains(
    edit: EditedGraph, fact_probabilities: pd.DataFrame
) -> dict[tuple[str, ...], list[float]]:
    """The deducible chain of each length that kept most: entities passed, and each step's p'/p, at most 1."""
    chain_steps = metrics.chain_index([edit])
    deducible_chains = metrics.chain_table(fact_probabilities, chain_steps).query("kept")
    strongest_first = deducible_chains.sort_values("ratio", ascending=False)
    best_of_length = strongest_first.drop_duplicates("length")
    facts_of_steps = chain_steps.merge(fact_probabilities, on=["case_id", "item"]).sort_values(
        "step"
    )
    share_left = (facts_of_steps["after"] / facts_of_steps["before"]).clip(upper=1)
    chain_numbers = best_of_length.sort_values("length")["chain"]
    shares_of_chains = {}
    for chain_number in chain_numbers:
        is_step = facts_of_steps["chain"] == chain_number
        shares_of_chains[edit.chains[chain_number].nodes] = share_left[is_step].tolist()
    return shares_of_chains


@figure("06_chain_samples")
def chain_samples(
    edit: EditedGraph, fact_probabilities: pd.DataFrame, *, caption: str = ""
) -> Figure:
    """Of each length the deducible chain that keeps most, with each link's p'/p (Figures 2 and 3)."""
    chains = strongest_chains(edit, fact_probabilities)
    longest = max(map(len, chains), default=1)
    fig, axes = plt.subplots(figsize=(1.45 * longest, 0.75 * len(chains) + 0.3))
    for row, (entities, shares_left) in enumerate(chains.items()):
        _draw_chain(axes, row, entities, shares_left)
    axes.set(xlim=(-0.6, longest - 0.4), ylim=(-len(chains) + 0.4, 0.6))
    axes.axis("off")
    note = "Share of each step's probability that is left; orange: below half"
    return with_caption(fig, _weak_steps_in_words(chains), f"{caption}\n{note}")


def _draw_chain(
    axes: Axes, row: int, entities: Sequence[str], shares_left: Sequence[float]
) -> None:
    """A chain's entities in boxes, and between them an arrow for each step with the share that is left."""
    box = {"boxstyle": "round", "facecolor": "white", "edgecolor": _KEPT}
    for column, entity in enumerate(entities):
        entity_label = without_mathematics(textwrap.fill(entity, 14))
        axes.text(column, -row, entity_label, bbox=box, **_CENTRED_TEXT)
    for column, share in enumerate(shares_left):
        arrow = {"arrowstyle": "->", "color": _KEPT if share >= 0.5 else _LOST}
        axes.annotate("", (column + 0.68, -row), (column + 0.32, -row), arrowprops=arrow)
        axes.text(column + 0.5, -row - 0.2, f"{share:.2f}", **_CENTRED_TEXT | {"va": "top"})


def _weak_steps_in_words(chains: Mapping[tuple[str, ...], list[float]]) -> str:
    """How many steps of ``strongest_chains`` keep less than half of their probability."""
    shares = [share for shares_left in chains.values() for share in shares_left]
    weak_count = sum(share < 0.5 for share in shares)
    return f"{weak_count} of {len(shares)} steps keep less than half of their probability"


def draw_graph(
    graph: nx.DiGraph, start: str, goal: str, axes: Axes, states: EdgeStates | None = None
) -> None:
    """Draw a graph from its subject (blue) to its object (red), by one of ``edge_states`` (Figures 15–20)."""
    coordinates = _coordinates_of_nodes(graph, comparable(start), comparable(goal))
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
        below_arrows = axes.text(x, y, node_label, zorder=2, bbox=box_style, **_CENTRED_TEXT)
        axes.text(x, y, node_label, zorder=4, bbox=box_style, **_CENTRED_TEXT)
        box_of_node[node] = below_arrows.get_bbox_patch()
    for tail, head in graph.edges:
        edge_colour, line_style = STATES[(states or {}).get((tail, head), "kept")]
        bend = (
            0.22 if (tail, head) == tuple(colour_of_end) else 0.12
        )  # the direct link keeps clear of boxes
        arrow_style = _ARROW_STYLE | {
            "color": edge_colour,
            "linestyle": line_style,
            "connectionstyle": f"arc3,rad={bend}",
        }
        arrow_ends: Any = {"patchA": box_of_node[tail], "patchB": box_of_node[head]}
        axes.add_patch(
            FancyArrowPatch(coordinates[tail], coordinates[head], **arrow_ends, **arrow_style)
        )
    if states is not None:
        for state in sorted({states[edge] for edge in graph.edges}, key=list(STATES).index):
            edge_colour, line_style = STATES[state]
            axes.plot([], [], color=edge_colour, linestyle=line_style, label=state)
        axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3)
    axes.axis("off")


@figure("06_grown")
def grown_graph(growth: Growth, *, caption: str = "") -> Figure:
    """The links of a grown graph that its chains pass; further links lead nowhere and are counted."""
    links_on_chains = [step.key for chain in growth.chains for step in chain]
    graph_on_chains = growth.graph.edge_subgraph(
        {(subject_node, object_node) for subject_node, _, object_node in links_on_chains}
    )
    fig, axes = plt.subplots(figsize=(6.6, 0.28 * len(graph_on_chains) + 2.2))
    draw_graph(graph_on_chains, growth.fact.subject, growth.fact.object, axes)
    further_links = growth.graph.number_of_edges() - graph_on_chains.number_of_edges()
    finding = f"{len(growth.chains)} chains lead from {growth.fact.subject} to {growth.fact.object}"
    return with_caption(fig, finding, f"{caption}; {further_links} further links are on no chain")


@figure("06_graph_before_and_after")
def graph_pair(edit: EditedGraph, *, caption: str = "", **moments: EdgeStates) -> Figure:
    """The known ways through an edit's graph before and after it.

    ``moments`` are its ``edge_states``.
    """
    start = comparable(edit.subject)
    goal = comparable(edit.original)
    shown_graph = known_ways(graph_of_facts(edit.facts), moments["before"], start, goal)
    fig = Figure(figsize=(6.8, 0.45 * len(shown_graph) + 3.2))  # a panel draws in a thread
    for axes, (moment, states) in zip(fig.subplots(2, 1), moments.items(), strict=True):
        draw_graph(shown_graph, start, goal, axes, states)
        axes.set_title(f"{moment} the edit", loc="left")
    finding = _known_links_in_words(edit, shown_graph, moments["after"])
    edit_words = f"{edit.prompt.replace('{}', edit.subject)} {edit.original} → {edit.new}"
    link_count = len(moments["after"])
    note = f"Known links that lead there, of {link_count}. Those kept may be less probable"
    return with_caption(fig, finding, f"{edit_words}\n{caption}\n{note}")


def _known_links_in_words(
    edit: EditedGraph, shown_graph: nx.DiGraph, states_after: EdgeStates
) -> str:
    """How many of the links that are shown are known after the edit, and what became of the direct one."""
    kept_count = [states_after[edge] for edge in shown_graph.edges].count("kept")
    direct_link = comparable(edit.subject), comparable(edit.original)
    state_of_direct = states_after.get(direct_link, "not among them")
    return (
        f"{kept_count} of {len(shown_graph.edges)} links towards {edit.original} are known after the"
        f" edit; the direct one is {state_of_direct}"
    )


def known_ways(graph: nx.DiGraph, states: EdgeStates, start: str, goal: str) -> nx.DiGraph:
    """Known links that lead from one node to another; all of the graph where none do."""
    known_links = graph.copy()
    known_links.remove_edges_from([edge for edge in graph.edges if states[edge] != "known"])
    if not nx.has_path(known_links, start, goal):
        return graph
    nodes_between = nx.descendants(known_links, start) & nx.ancestors(known_links, goal)
    nodes_on_ways = {start, goal, *nodes_between}
    known_links.remove_nodes_from([node for node in graph if node not in nodes_on_ways])
    return known_links


@figure("06_case", each=("number", lambda run: ()))
def stored_case(
    edit: EditedGraph, facts: pd.DataFrame, *, number: str, caption: str = ""
) -> Figure:
    """The known ways through a stored edit's graph before and after it (Figures 15–20)."""
    return graph_pair(edit, caption=f"case {number}, {caption}", **edge_states(edit, facts))


def _case_numbers(run: Run) -> list[int]:
    return [record.case_id for record in load_edited_graphs(run.about.source["layout"])]


def _editors_alone(run: Run) -> list[str]:
    """The methods of which a run has exact scores of edits made alone."""
    return [key.method for key in run.keys if key.kind == "exact" and key.mode == MODES[0]]


def _modes_with_scores(run: Run) -> list[str]:
    modes = {key.mode for key in run.keys if key.kind == "exact"}
    return [mode for mode in MODES if mode in modes]


@figure(
    "06_recalled_case",
    of="thinkedit",
    needs=("exact", "chains"),
    when=is_recalled,
    main="smollm2-135m_recalled-smollm2-135m",
    options={
        "case": Option("number", _case_numbers),
        "editor": Option("editor", _editors_alone),
        "mode": Option("mode", _modes_with_scores),
    },
    on_request="case",
)
def recalled_case(
    run: Run, *, number: int, editor: str = "memit", mode: str = "independent"
) -> Figure:
    """The known ways through one of the graphs that a model recalls, before and after its edit."""
    edit = by_case_id(load_edited_graphs(run.about.source["layout"]), number)
    facts = facts_of(run, editor, mode=mode)
    caption = f"case {number}, {caption_of_runs([run], f'{editor}, {mode}')}"
    return graph_pair(edit, caption=caption, **edge_states(edit, facts))


def _coordinates_of_nodes(
    graph: nx.DiGraph, start: str, goal: str
) -> dict[str, tuple[float, float]]:
    """Columns by distance from the subject, the object alone at the right, every other row indented."""
    steps_from_start = nx.single_source_shortest_path_length(graph, start)
    farthest = max((steps for node, steps in steps_from_start.items() if node != goal), default=0)
    nodes_by_column: dict[int, list[str]] = {}
    for node in graph:
        column = farthest + 1 if node == goal else steps_from_start.get(node, farthest)
        nodes_by_column.setdefault(column, []).append(node)
    coordinates = {}
    for column, nodes_of_column in nodes_by_column.items():
        for row, node in enumerate(nodes_of_column):
            indent = 0.2 * (-1) ** row if len(nodes_of_column) > 1 else 0.0
            height = (len(nodes_of_column) - 1) / 2 - row + 0.25 * (column % 2)
            coordinates[node] = column + indent, height
    return coordinates
