"""One edit looked at closely: which facts it kept and lost, and the chains that still hold."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from helpers.thinkedit import metrics, tables
from helpers.thinkedit.edits import Edit
from helpers.thinkedit.graph import Triplet, edited_triplet, graph_of_facts, is_deep_edited

EdgeStates = dict[tuple[str, str], str]


def edge_states(edit: Edit, facts: pd.DataFrame) -> dict[str, EdgeStates]:
    """State of every edge of the edit's graph, "before" and "after".

    Where two facts link the same ordered pair, which the graph draws as one edge, either will do.

    Args:
        edit: the edit.
        facts: table of ``tables.exact_facts`` or ``tables.sampled_facts``.

    Returns:
        For each moment, edge → before: "known" or "unknown"; after: "kept", "lost" (known before only) or
        "unknown" (not known before).
    """
    keys = [Triplet.of(fact).key for fact in edit.facts]
    mine = facts[facts["case_id"] == edit.case_id].sort_values("item")
    edges = mine.assign(subject=[k[0] for k in keys], object=[k[2] for k in keys])
    known = edges.groupby(["subject", "object"], sort=False)[["known_before", "known_after"]].any()
    states: dict[str, EdgeStates] = {"before": {}, "after": {}}
    for (subject, goal), once, still in known.itertuples():
        states["before"][subject, goal] = "known" if once else "unknown"
        states["after"][subject, goal] = "unknown" if not once else "kept" if still else "lost"
    return states


def deep_edited_up_to(edit: Edit, facts: pd.DataFrame, *, steps: int = 5) -> Mapping[int, bool]:
    """For each number of steps, whether the known facts after the edit no longer imply the old one."""
    known = facts[(facts["case_id"] == edit.case_id) & facts["known_after"]]
    left = graph_of_facts([edit.facts[item] for item in known["item"]])
    target = edited_triplet(edit)
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

    Only chains that were deducible before. Chains are ranked by their uncapped ratio; the steps'
    ratios are capped at 1 for display.
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
