"""One edit looked at closely: which facts it kept and lost, and the chains that still hold."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from helpers.data.knowgic import Edit
from helpers.metrics import thinkedit as metrics
from helpers.thinkedit import tables
from helpers.thinkedit.graph import Triplet, graph_of_facts, is_deep_edited, retained

EdgeStates = dict[tuple[str, str], str]


def edge_states(edit: Edit, facts: pd.DataFrame) -> dict[str, EdgeStates]:
    """State of every edge of the edit's graph, "before" and "after".

    Args:
        edit: the edit.
        facts: table of ``tables.exact_facts`` or ``tables.sampled_facts``.

    Returns:
        For each moment, edge → "kept", "lost" (known before only) or "unknown" (not known before).
    """
    known = facts[facts["case_id"] == edit.case_id].set_index("item")
    states: dict[str, EdgeStates] = {"before": {}, "after": {}}
    for item, fact in enumerate(edit.facts):
        edge = Triplet.of(fact).key[0], Triplet.of(fact).key[2]
        once, still = bool(known.loc[item, "known_before"]), bool(known.loc[item, "known_after"])
        states["before"][edge] = "kept" if once else "unknown"
        states["after"][edge] = "unknown" if not once else "kept" if still else "lost"
    return states


def deep_edited_up_to(edit: Edit, facts: pd.DataFrame, *, steps: int = 5) -> Mapping[int, bool]:
    """For each number of steps, whether the known facts after the edit no longer imply the old one."""
    known = facts[(facts["case_id"] == edit.case_id) & facts["known_after"]]
    graph = graph_of_facts(edit.facts)
    left = retained(graph, [Triplet.of(edit.facts[item]) for item in known["item"]])
    relation = edit.prompt.replace("{}", "").strip()
    target = Triplet(edit.subject, relation, edit.original)
    return {n: is_deep_edited(left, target, steps=n) for n in range(1, steps + 1)}


def step_table(edit: Edit, facts: pd.DataFrame) -> pd.DataFrame:
    """Chains, deducible and active ones, and IFR by chain length (the paper's Table 2, for any edit)."""
    steps = tables.steps_table(facts, tables.chain_index([edit]))
    recovery = metrics.recovery_per_edit(metrics.chain_table(steps))
    columns = {"kept": "deducible before", "active": "active after", "value": "IFR"}
    names = ["steps", "chains", *columns]
    return recovery[names].rename(columns=columns).sort_values("steps", ignore_index=True)


def strongest_chains(
    edit: Edit, facts: pd.DataFrame, *, most: int = 5
) -> tuple[list[tuple[str, ...]], list[list[float]]]:
    """The longest-lived chain of each length: entities passed, and each step's ratio p'/p.

    Only chains that were deducible before; ratios are capped at 1 for display.
    """
    steps = tables.steps_table(facts, tables.chain_index([edit]))
    chains = metrics.chain_table(steps)
    best = chains[chains["kept"]].sort_values("ratio", ascending=False).drop_duplicates("length")
    nodes, ratios = [], []
    for number in best.sort_values("length")["chain"].head(most):
        mine = steps[steps["chain"] == number].sort_values("step")
        nodes.append(edit.chains[number].nodes)
        ratios.append((mine["after"] / mine["before"]).clip(upper=1).tolist())
    return nodes, ratios
