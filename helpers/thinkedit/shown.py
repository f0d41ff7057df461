"""What an edit's objective is shown of a graph's chains, and what is left to score it by.

The facts about the edited subject that begin longer chains are what a consistent edit also changes: were
they still true, the original answer would follow from them. Half of them, drawn at random by the edit's
number, are *shown*: as ``chain`` probes, each with the new fact and the facts that remain on its
chain as the context. Chains that contain one of them are scored for no method; the graph without them is
what is scored. A published run makes the edits of which something is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from helpers.editing.request import TrainingProbe
from helpers.models.tokens import separator_after
from helpers.thinkedit.knowgic import Chain, EditedGraph


@dataclass(frozen=True)
class SplitGraph:
    """A graph without the chains that are shown, and the probes that they give."""

    scored: EditedGraph
    probes: tuple[TrainingProbe, ...]


def split_graph(edit: EditedGraph) -> SplitGraph:
    """Half of the first facts of an edit's longer chains are shown; of one alone none is."""
    longer_chains = [chain for chain in edit.chains if len(chain) > 1]
    first_facts = list(dict.fromkeys(chain.facts[0].key for chain in longer_chains))
    shuffled = np.random.default_rng(edit.case_id).permutation(len(first_facts))
    shown_facts = {first_facts[index] for index in shuffled[: len(first_facts) // 2]}
    shown_chains = [chain for chain in longer_chains if chain.facts[0].key in shown_facts]
    scored_chains = tuple(
        chain for chain in edit.chains if not any(fact.key in shown_facts for fact in chain.facts)
    )
    probes = tuple(chain_probe(edit, chain) for chain in shown_chains)
    return SplitGraph(replace(edit, chains=scored_chains), probes)


def chain_probe(edit: EditedGraph, chain: Chain) -> TrainingProbe:
    """What a chain's first fact becomes where the edited fact is new and its other facts remain."""
    first_fact, *remaining_facts = chain.facts
    statements = [_statement(edit.prompt.replace("{}", edit.subject), edit.new)]
    statements += [_statement(fact.cloze, fact.object) for fact in remaining_facts]
    return TrainingProbe(
        "chain", first_fact.prompt.strip(), first_fact.object, (" ".join(statements),)
    )


def split_graphs(
    edits: Sequence[EditedGraph],
) -> tuple[list[EditedGraph], dict[int, tuple[TrainingProbe, ...]]]:
    """The graphs that are scored, and by its ``case_id`` the probes of each edit that has any."""
    splits = [split_graph(edit) for edit in edits]
    probes_by_case = {split.scored.case_id: split.probes for split in splits if split.probes}
    return [split.scored for split in splits], probes_by_case


def _statement(prompt: str, answer: str) -> str:
    return f"{prompt}{separator_after(prompt)}{answer}."
