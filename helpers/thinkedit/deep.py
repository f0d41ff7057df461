"""Deep edits (beyond the paper): also edit the subject's other facts that lead to the original object.

The paper asks for it (section 4: with the school the house must change, too) but evaluates none. Here
every fact about the edited subject that begins a chain gets another object of its kind, one from which
no chain leads to the original object. All requests of an edit are then made as one joint edit.
"""

from __future__ import annotations

import networkx as nx

from helpers.data.knowgic import Edit
from helpers.editing.request import EditRequest
from helpers.thinkedit.graph import graph_of_facts
from helpers.thinkedit.probes import Kinds, request_of, rivals_of


def deep_requests(edit: Edit, kinds: Kinds) -> list[EditRequest]:
    """The edit itself, then one request per first step of its chains.

    A first step whose kind has no harmless entity is left as it is, so its chains stay.

    Args:
        edit: the edit with its chains.
        kinds: entities by kind, from ``kinds_of``.
    """
    graph = graph_of_facts(edit.facts)
    leading = nx.ancestors(graph, edit.original.casefold()) | {edit.original.casefold()}
    requests = [request_of(edit, kinds)]
    first = {chain.facts[0].key: chain.facts[0] for chain in edit.chains if len(chain) > 1}
    for fact in first.values():
        harmless = [name for name in rivals_of(fact, edit, kinds) if name.casefold() not in leading]
        if harmless:
            requests.append(
                EditRequest(
                    fact.subject,
                    fact.prompt,
                    harmless[0],
                    (fact.object,),
                    tuple(harmless[1:6]),
                    record=str(edit.case_id),
                )
            )
    return requests
