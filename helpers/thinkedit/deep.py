"""Deep edits (beyond the paper): also edit the subject's other facts that lead to the original object.

The paper asks for it (section 4: with the school the house must change, too) but evaluates none. Here
every question about the edited subject that begins a chain gets another answer of its kind, one from
which no chain leads to the original object. All requests of an edit are then made as one joint edit.
"""

from __future__ import annotations

import networkx as nx

from helpers.data.knowgic import Edit, Fact
from helpers.editing.request import EditRequest
from helpers.thinkedit.graph import graph_of_facts
from helpers.thinkedit.probes import Kinds, all_rivals_of, request_of


def deep_requests(edit: Edit, kinds: Kinds) -> list[EditRequest]:
    """The edit itself, then one request per question that begins its chains.

    First steps with the same prompt become one request, for one object in place of all of theirs; those
    that ask what the edit asks need none. A first step whose kind has no harmless entity is left as it
    is, so its chains stay.

    Args:
        edit: the edit with its chains.
        kinds: entities by kind, from ``kinds_of``.
    """
    graph = graph_of_facts(edit.facts)
    leading = nx.ancestors(graph, edit.original.casefold()) | {edit.original.casefold()}
    asked = {edit.prompt} | ({edit.direct_fact.prompt} if edit.direct_fact else set())
    firsts: dict[str, dict[str, Fact]] = {}
    for chain in edit.chains:
        if chain.facts[0].prompt not in asked:
            firsts.setdefault(chain.facts[0].prompt, {})[chain.facts[0].key[2]] = chain.facts[0]
    requests = [request_of(edit, kinds)]
    for prompt, facts in firsts.items():
        fact = next(iter(facts.values()))
        rivals = all_rivals_of(fact, edit, kinds)
        harmless = [name for name in rivals if name.casefold() not in leading]
        if harmless:
            correct = tuple(fact.object for fact in facts.values())
            requests.append(
                EditRequest(
                    edit.subject,
                    prompt,
                    harmless[0],
                    correct,
                    tuple(harmless[1:6]),
                    record=str(edit.case_id),
                )
            )
    return requests
