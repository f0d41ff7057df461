"""One edit looked at closely: which facts it kept and lost, and the chains that still hold.

``facts`` is the edit's table of ``metrics.facts_table``, made live or from stored scores.
"""

from __future__ import annotations

import pandas as pd

from helpers.thinkedit import metrics
from helpers.thinkedit.graph import Triplet, edited_triplet, graph_of_facts, is_deep_edited
from helpers.thinkedit.knowgic import Edit

EdgeStates = dict[tuple[str, str], str]


def edge_states(edit: Edit, facts: pd.DataFrame) -> dict[str, EdgeStates]:
    """State of every edge of the edit's graph, "before" and "after".

    Before: "known" or "unknown"; after: "kept", "lost" (known before only) or "unknown" (not known
    before). Where two facts link the same ordered pair, which the graph draws as one edge, either will do.
    """
    keys = [Triplet.of(fact).key for fact in edit.facts]
    mine = facts[facts["case_id"] == edit.case_id].sort_values("item")
    edges = mine.assign(subject=[k[0] for k in keys], object=[k[2] for k in keys])
    known = edges.groupby(["subject", "object"], sort=False)[["known_before", "known_after"]].any()
    states: dict[str, EdgeStates] = {"before": {}, "after": {}}
    for (subject, goal), once, still in known.itertuples():
        states["before"][subject, goal] = "known" if once else "unknown"
        states["after"][subject, goal] = state_of(once, still)
    return states


def state_of(once: bool, still: bool) -> str:
    """What an edit did to a fact that was known before, or not, and is known after, or not."""
    return "unknown" if not once else "kept" if still else "lost"


def deep_edited_up_to(edit: Edit, facts: pd.DataFrame, *, steps: int = 5) -> dict[int, bool]:
    """For each number of steps, whether the known facts after the edit no longer imply the old one."""
    known = facts[(facts["case_id"] == edit.case_id) & facts["known_after"]]
    left = graph_of_facts([edit.facts[item] for item in known["item"]])
    target = edited_triplet(edit)
    return {n: is_deep_edited(left, target, steps=n) for n in range(1, steps + 1)}


def step_table(edit: Edit, facts: pd.DataFrame) -> pd.DataFrame:
    """Chains, deducible and active ones, and IFR by chain length (the paper's Table 2, for any edit)."""
    folded = metrics.chain_table(facts, metrics.chain_index([edit]))
    columns = {"kept": "deducible before", "active": "active after", "value": "IFR"}
    return metrics.recovery_by_steps(folded).rename(columns=columns)


def preservation(edit: Edit, facts: pd.DataFrame) -> tuple[float, int]:
    """CKP of the edit (1 without known facts, as defined), and the facts behind it."""
    index = metrics.chain_index([edit])
    terms = metrics.terms_of(facts, metrics.chain_table(facts, index), index)
    return metrics.value_of(terms, "CKP"), int((terms["measure"] == "CKP").sum())


def strongest_chains(
    edit: Edit, facts: pd.DataFrame, *, most: int = 5
) -> tuple[list[tuple[str, ...]], list[list[float]]]:
    """The longest-lived chain of each length: entities passed, and each step's ratio p'/p.

    Only chains that were deducible before. Chains are ranked by their uncapped ratio; the steps'
    ratios are capped at 1 for display.
    """
    index = metrics.chain_index([edit])
    chains = metrics.chain_table(facts, index)
    best = chains[chains["kept"]].sort_values("ratio", ascending=False).drop_duplicates("length")
    steps = index.merge(facts, on=["case_id", "item"]).sort_values("step")
    left = (steps["after"] / steps["before"]).clip(upper=1)
    numbers = best.sort_values("length")["chain"].head(most)
    ratios = [left[steps["chain"] == number].tolist() for number in numbers]
    return [edit.chains[number].nodes for number in numbers], ratios
