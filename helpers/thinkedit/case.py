"""One edit's ``facts`` (``metrics.facts_table``) looked at closely: what is lost, and its graph drawn."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from numpy.typing import NDArray

from helpers import UserError
from helpers.editing.editors import method_label
from helpers.records import by_case_id, comparable
from helpers.results.archive import Run
from helpers.results.figure import Option, figure
from helpers.results.style import PALETTE, with_caption, without_mathematics
from helpers.thinkedit import metrics
from helpers.thinkedit.graph import Triplet, edited_triplet, graph_of_facts, is_deep_edited
from helpers.thinkedit.grow.pipeline import Growth
from helpers.thinkedit.knowgic import LAYOUTS, Chain, EditedGraph, load_edited_graphs
from helpers.thinkedit.modes import MODES
from helpers.thinkedit.tables import facts_of, has_whole_graphs, model_of

Edge = tuple[str, str]  # subject and object, as they are compared
EdgeStates = Mapping[Edge, str]
_KEPT, _LOST = PALETTE[2], PALETTE[3]


@dataclass(frozen=True)
class LinkLook:
    """How a link is drawn, and what that means."""

    colour: Any = _KEPT
    line: str = "-"
    label: str = "known"


EdgeLooks = Mapping[Edge, LinkLook]
LOOKS = {
    "kept": LinkLook(_KEPT, "-", "known after the edit"),
    "lost": LinkLook(_LOST, "--", "lost"),
    "unknown": LinkLook("0.75", ":", "never known"),
}
# By the least share of a link's probability that is left.
_LOOKS_OF_SHARES = {
    0.5: LinkLook(_KEPT, "-", "half or more of the probability left"),
    0.1: LinkLook(PALETTE[1], "-.", "a tenth to a half left"),
    0.0: LinkLook(_LOST, "--", "less than a tenth left"),
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


def looks_by_share(edit: EditedGraph, fact_probabilities: pd.DataFrame) -> dict[Edge, LinkLook]:
    """Of every edge how it is drawn by the share of its probability that the edit leaves.

    Of an edge with several facts that of the most probable known one. An edge that was never known is drawn
    as such.
    """
    looks: dict[Edge, LinkLook] = {}
    facts_of_edit = fact_probabilities[fact_probabilities["case_id"] == edit.case_id]
    facts_by_item = facts_of_edit.set_index("item").to_dict("index")
    probability_of_edge: dict[Edge, float] = {}
    for item, fact in enumerate(edit.facts):
        edge = (comparable(fact.subject), comparable(fact.object))
        scores = facts_by_item[item]
        looks.setdefault(edge, LOOKS["unknown"])
        before = float(scores["before"])
        if scores["known_before"] and before > probability_of_edge.get(edge, 0.0):
            probability_of_edge[edge] = before
            share_left = float(scores["after"]) / before
            least_share = max(least for least in _LOOKS_OF_SHARES if share_left >= least)
            looks[edge] = _LOOKS_OF_SHARES[least_share]
    return looks


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


def draw_graph(
    graph: nx.DiGraph, start: str, goal: str, axes: Axes, looks: EdgeLooks | None = None
) -> None:
    """Draw a graph from its subject (blue) to its object (red); ``looks`` are its links' (Figures 15–20).

    The figure has its caption already: the arrows' bends depend on the space that is left.
    """
    coordinates = _coordinates_of_nodes(graph, comparable(start), comparable(goal))
    axes.scatter(*zip(*coordinates.values(), strict=True), alpha=0)
    axes.margins(x=0.12, y=0.2)
    axes.autoscale_view()
    axes.autoscale(False)
    colour_of_end = {comparable(start): PALETTE[0], comparable(goal): PALETTE[3]}
    box_of_node: dict[str, FancyBboxPatch] = {}
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
        box = below_arrows.get_bbox_patch()
        assert box is not None
        box_of_node[node] = box
    if looks:
        shown_looks = {looks[edge] for edge in graph.edges}
        in_order = (*_LOOKS_OF_SHARES.values(), *LOOKS.values(), _OF_SUBJECT, _OF_OTHERS)
        for look in filter(shown_looks.__contains__, in_order):
            axes.plot([], [], color=look.colour, linestyle=look.line, label=look.label)
        axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=4)
    axes.axis("off")
    bends = _bends(axes, coordinates, box_of_node, list(graph.edges))
    for (tail, head), bend in bends.items():
        look = (looks or {}).get((tail, head), LinkLook())
        arrow_style = _ARROW_STYLE | {
            "color": look.colour,
            "linestyle": look.line,
            "connectionstyle": f"arc3,rad={bend}",
        }
        arrow_ends: Any = {"patchA": box_of_node[tail], "patchB": box_of_node[head]}
        axes.add_patch(
            FancyArrowPatch(coordinates[tail], coordinates[head], **arrow_ends, **arrow_style)
        )


def _bends(
    axes: Axes,
    coordinates: Mapping[str, tuple[float, float]],
    box_of_node: Mapping[str, FancyBboxPatch],
    edges: Sequence[Edge],
) -> dict[Edge, float]:
    """The bend (``rad`` of ``arc3``) of each arrow: a small one that keeps clear of the rest.

    That is above all of other nodes' boxes and of the panel's edge, and also of the arrows before it; short
    arrows come first.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # lays the panel out
    centres = {node: axes.transData.transform(point) for node, point in coordinates.items()}
    boxes = {node: box.get_window_extent().padded(_CLEARANCE) for node, box in box_of_node.items()}
    drawn_curves: list[NDArray[np.floating]] = []

    def cost(edge: Edge, bend: float) -> float:
        curve = _points_of_arrow(centres[edge[0]], centres[edge[1]], bend)
        others = [box for node, box in boxes.items() if node not in edge]
        hidden = sum(
            any(box.contains(*point) for box in others) or not axes.bbox.contains(*point)
            for point in curve
        )
        touching = sum(
            (np.linalg.norm(drawn - point, axis=1) < _CLEARANCE).any()
            for drawn in drawn_curves
            for point in curve[8:-8]  # arrows may meet at a node
        )
        return 5 * hidden + touching + 10 * abs(bend)

    def length(edge: Edge) -> float:
        return float(np.linalg.norm(centres[edge[1]] - centres[edge[0]]))

    bends = {}
    for edge in sorted(edges, key=length):
        bends[edge] = min(_BENDS, key=lambda bend: cost(edge, bend))
        drawn_curves.append(_points_of_arrow(centres[edge[0]], centres[edge[1]], bends[edge]))
    return bends


_BENDS = tuple(sign * bend for bend in np.arange(0.12, 1.0, 0.08) for sign in (1, -1))
_CLEARANCE = 6  # pixels


def _points_of_arrow(
    start: NDArray[np.floating], end: NDArray[np.floating], bend: float
) -> NDArray[np.floating]:
    """Points along an arrow [points, 2] as ``arc3`` draws it, in pixels."""
    across = np.array([end[1] - start[1], start[0] - end[0]])
    control = (start + end) / 2 + bend * across
    share = np.linspace(0, 1, 41)[:, None]
    return (1 - share) ** 2 * start + 2 * share * (1 - share) * control + share**2 * end


@figure("06_grown")
def grown_graph(growth: Growth, *, caption: str = "") -> Figure:
    """The links of a grown graph that its chains pass; further links lead nowhere and are counted."""
    links_on_chains = [step.key for chain in growth.chains for step in chain]
    graph_on_chains = growth.graph.edge_subgraph(
        {(subject_node, object_node) for subject_node, _, object_node in links_on_chains}
    )
    fig, axes = plt.subplots(figsize=(6.6, 0.28 * len(graph_on_chains) + 1.4))
    further_links = growth.graph.number_of_edges() - graph_on_chains.number_of_edges()
    finding = f"{len(growth.chains)} chains lead from {growth.fact.subject} to {growth.fact.object}"
    footer = f"link: a fact; chain: a path of at most five; {further_links} further links are on no chain"
    with_caption(fig, finding, f"{footer}; {caption}")
    draw_graph(graph_on_chains, growth.fact.subject, growth.fact.object, axes)
    return fig


@figure("06_case", each=("number", lambda run: ()))
def stored_case(
    edit: EditedGraph, facts: pd.DataFrame, *, number: str, method: str, caption: str = ""
) -> Figure:
    """The chains that an edit leaves active; where it leaves none, those that it broke (Figures 15–20)."""
    chains = chains_by_state(edit, facts)
    # Of an edit with no deducible chain, all are drawn, with what was never known.
    shown_chains = chains["active"] or chains["deducible"] or list(edit.chains)
    direct_chains = [chain for chain in chains["deducible"] if len(chain) == 1]
    facts_drawn = [fact for chain in [*direct_chains, *shown_chains] for fact in chain.facts]
    graph = graph_of_facts(facts_drawn)
    states = edge_states(edit, facts)["after"]
    looks = {edge: LOOKS[states[edge]] for edge in graph.edges}
    fig = Figure(figsize=(6.8, 0.3 * len(graph) + 1.5))  # a panel draws in a thread
    edit_words = f"{edit.prompt.replace('{}', edit.subject)} {edit.original} → {edit.new}"
    finding = _ways_in_words(edit, states, chains, method_label(method))
    drawn_words = "these chains" if chains["active"] else "all known chains"
    if chains["active"] and direct_chains:
        drawn_words = f"{drawn_words} and the direct link"
    with_caption(fig, finding, f"{edit_words}; {drawn_words}; case {number}; {caption}")
    draw_graph(graph, edit.subject, edit.original, fig.subplots(), looks)
    return fig


def chains_by_state(edit: EditedGraph, facts: pd.DataFrame) -> dict[str, list[Chain]]:
    """The edit's chains that are deducible (known before it), and those still active after it."""
    of_edit = facts[facts["case_id"] == edit.case_id]
    chains = metrics.chain_table(of_edit, metrics.chain_index([edit]))
    deducible = chains[chains["kept"]]
    return {
        "deducible": [edit.chains[number] for number in deducible["chain"]],
        "active": [edit.chains[number] for number in deducible.loc[deducible["active"], "chain"]],
    }


def _ways_in_words(
    edit: EditedGraph, states_after: EdgeStates, chains: Mapping[str, Sequence[Chain]], label: str
) -> str:
    """What still leads from the subject, or to the old object, after the edit."""
    active_count = len(chains["active"])
    if active_count:
        return (
            f"After {label} {active_count} of {len(chains['deducible'])} known chains still lead from"
            f" {edit.subject} to {edit.original}"
        )
    start = comparable(edit.subject)
    ways_out = [state for (tail, _), state in states_after.items() if tail == start]
    if "kept" not in ways_out:
        return f"After {label} nothing leads out of {edit.subject}"
    return f"After {label} no chain leads from {edit.subject} to {edit.original}"


def _made_in_words(mode: str) -> str:
    return "edit made alone" if mode == MODES[0] else f"mode {mode}"


def _case_numbers(run: Run) -> list[int]:
    return [record.case_id for record in load_edited_graphs(run.about.source["layout"])]


def _editors_alone(run: Run) -> list[str]:
    """The methods of which a run has exact scores of edits made alone."""
    return [key.method for key in run.keys if key.kind == "exact" and key.mode == MODES[0]]


def _modes_with_scores(run: Run) -> list[str]:
    modes = {key.mode for key in run.keys if key.kind == "exact"}
    return [mode for mode in MODES if mode in modes]


def _options(case_numbers: Callable[[Run], list[int]]) -> dict[str, Option]:
    """What may be chosen of a graph's figures: the edit, among these numbers, the editor and the mode."""
    return {
        "case": Option("number", case_numbers),
        "editor": Option("editor", _editors_alone),
        "mode": Option("mode", _modes_with_scores),
    }


@figure(
    "06_recalled_case",
    of="thinkedit",
    needs=("exact", "chains"),
    when=has_whole_graphs,
    main="smollm2-135m_recalled-smollm2-135m",
    options=_options(_case_numbers),
    on_request="case",
)
def recalled_case(
    run: Run, *, number: int, editor: str = "memit", mode: str = "independent"
) -> Figure:
    """What an edit leaves of the chains of one of the graphs that a model recalls."""
    edit = by_case_id(load_edited_graphs(run.about.source["layout"]), number)
    facts = facts_of(run, editor, mode=mode)
    known_words = f"known: probability of {metrics.DEFAULT.threshold:g} or more"
    caption = f"{model_of(run)}, {_made_in_words(mode)}; {known_words}"
    return stored_case(edit, facts, number=str(number), method=editor, caption=caption)


def _is_of_paper(run: Run) -> bool:
    """Whether a run's edits are those of the paper's own file."""
    return run.about.source.get("layout") in LAYOUTS


def _stored_case_numbers(run: Run) -> list[int]:
    """The edits that a run has scores of; that needs no downloaded file."""
    return sorted(int(number) for number in run.tables["chains"]["case_id"].unique())


@figure(
    "06_knowgic",
    of="thinkedit",
    needs=("exact", "chains"),
    when=_is_of_paper,
    main="smollm2-135m",
    options=_options(_stored_case_numbers),
    on_request="case",
)
def knowgic_case(
    run: Run, *, number: int, editor: str = "alphaedit", mode: str = "independent"
) -> Figure:
    """A graph of KnowGIC after an edit; cases 15, 9, 5, 16, 6 and 7 are Figures 15 to 20 of ThinkEdit.

    The graphs are the authors' file, which is downloaded, or found in ``HELPERS_DATA``.
    """
    edit = by_case_id(load_edited_graphs(run.about.source["layout"]), number)
    facts = facts_of(run, editor, mode=mode, rule=metrics.BY_RANK)
    caption = f"{model_of(run)}, {_made_in_words(mode)}; known: 0.05 or more, or above all rivals"
    return stored_case(edit, facts, number=str(number), method=editor, caption=caption)


@figure("06_deduced", alone=True)
def deducible_fact() -> Figure:
    """A fact that can be deduced: links about its subject are to be edited, the others kept (Figure 1)."""
    edit = by_case_id(load_edited_graphs("mini"), _EXAMPLE)
    graph = graph_of_facts(list(edit.facts))
    start = comparable(edit.subject)
    looks = {edge: _OF_SUBJECT if edge[0] == start else _OF_OTHERS for edge in graph.edges}
    fig, axes = plt.subplots(figsize=(6.6, 0.3 * len(graph) + 1.5))
    longer_chains = [chain for chain in edit.chains if len(chain) > 1]
    finding = (
        f"Edit {edit.subject}'s link to {edit.original} alone, and {len(longer_chains)} chains still lead"
        " there"
    )
    footer = f"packaged graph of {len(edit.facts)} facts (ThinkEdit's Figure 1 in small); no model is asked"
    with_caption(fig, finding, footer)
    draw_graph(graph, edit.subject, edit.original, axes, looks)
    return fig


_EXAMPLE = 1  # of the graphs written by hand: the paper's own example
_OF_SUBJECT = LinkLook(_LOST, "--", "about the subject: to be edited")
_OF_OTHERS = LinkLook(_KEPT, "-", "about others: to be kept")


@figure(
    "06_chain_samples",
    of="thinkedit",
    needs=("exact", "chains"),
    when=has_whole_graphs,
    main="smollm2-135m_recalled-smollm2-135m",
    options=_options(_case_numbers),
    on_request="case",
)
def chain_samples(
    run: Run, *, number: int, editor: str = "memit", mode: str = "independent"
) -> Figure:
    """Chains to the old fact, one of each length, with what is left of each link (Figure 3).

    Of the chains that are deducible before the edit those of which most is left.
    """
    edit = by_case_id(load_edited_graphs(run.about.source["layout"]), number)
    facts = facts_of(run, editor, mode=mode)
    of_edit = facts[facts["case_id"] == number]
    chains = metrics.chain_table(of_edit, metrics.chain_index([edit]))
    deducible = chains[chains["kept"]].sort_values("ratio", ascending=False, kind="stable")
    best_of_length = deducible.drop_duplicates("length").sort_values("length")
    if not len(best_of_length):
        raise UserError(
            f"case {number}: no chain of it is deducible before the edit; take another --case"
        )
    share_left = (of_edit["after"] / of_edit["before"]).set_axis(of_edit["item"])
    item_of_fact = {fact.key: item for item, fact in enumerate(edit.facts)}
    fig, axes = plt.subplots(
        figsize=(1.6 * best_of_length["length"].max() + 2.4, 0.62 * len(best_of_length) + 0.9)
    )
    for row, (_, chain_row) in enumerate(best_of_length.iterrows()):
        chain = edit.chains[int(chain_row["chain"])]
        shares = [float(share_left[item_of_fact[fact.key]]) for fact in chain.facts]
        _draw_chain(axes, -row, chain, shares)
    axes.set(
        xlim=(-0.5, best_of_length["length"].max() + 0.5), ylim=(0.5 - len(best_of_length), 0.5)
    )
    axes.axis("off")
    most_left = min(1.0, deducible["ratio"].max())
    finding = (
        f"After {method_label(editor)} {100 * most_left:.0f} % is left of the strongest chain from"
        f" {edit.subject} to {edit.original}"
    )
    caption = (
        f"share left of each link; {len(deducible)} deducible chains; case {number};"
        f" {model_of(run)}, {_made_in_words(mode)}"
    )
    return with_caption(fig, finding, caption)


def _draw_chain(axes: Axes, height: float, chain: Chain, shares: Sequence[float]) -> None:
    """A chain as a row of boxes, with what is left of each link below its arrow."""
    box_style = {"boxstyle": "round", "facecolor": "white", "edgecolor": "0.4"}
    boxes = []
    for column, node in enumerate(chain.nodes):
        label = without_mathematics(textwrap.fill(node, 16))
        text = axes.text(column, height, label, bbox=box_style, zorder=4, **_CENTRED_TEXT)
        boxes.append(text.get_bbox_patch())
    for column, share in enumerate(shares):
        look = _LOOKS_OF_SHARES[max(least for least in _LOOKS_OF_SHARES if share >= least)]
        arrow_style = _ARROW_STYLE | {"color": look.colour, "linestyle": look.line}
        ends: Any = {"patchA": boxes[column], "patchB": boxes[column + 1]}
        start = (column, height)
        axes.add_patch(FancyArrowPatch(start, (column + 1, height), **ends, **arrow_style))
        axes.text(column + 0.5, height - 0.25, f"{share:.2g}", color=look.colour, **_CENTRED_TEXT)


def _coordinates_of_nodes(
    graph: nx.DiGraph, start: str, goal: str
) -> dict[str, tuple[float, float]]:
    """Columns by distance from the subject, each bent like a bow; the object alone at the right.

    Straight lines from the left then reach the outer nodes of a column without crossing an inner one.
    """
    steps_from_start = nx.single_source_shortest_path_length(graph, start)
    farthest = max((steps for node, steps in steps_from_start.items() if node != goal), default=0)
    nodes_by_column: dict[int, list[str]] = {}
    for node in graph:
        column = farthest + 1 if node == goal else steps_from_start.get(node, farthest)
        nodes_by_column.setdefault(column, []).append(node)
    coordinates = {}
    for column, nodes_of_column in nodes_by_column.items():
        half_height = (len(nodes_of_column) - 1) / 2
        for row, node in enumerate(nodes_of_column):
            height = half_height - row
            bow = 0.5 * (height / half_height) ** 2 if half_height else 0.0
            coordinates[node] = column - bow, height + 0.25 * (column % 2)
    return coordinates
