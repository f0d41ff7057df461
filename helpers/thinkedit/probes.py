"""What is asked about an edit: facts on its chains, other question forms, and the usual metrics' prompts.

Forms: ``fact``, the cloze of a fact of the graph; ``reverse`` and ``yes_no``, which ask for the subject and
the whole fact (facts about the edited subject; Figures 11–14); ``edit``, the edit prompt; ``paraphrase`` and
``neighbour``, a *reconstruction*, since KnowGIC has none: template paraphrases, and facts about others.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from helpers.editing.request import EditRequest
from helpers.records import comparable
from helpers.thinkedit.knowgic import ChainFact, EditedGraph

FORMS = ("fact", "reverse", "yes_no", "edit", "paraphrase", "neighbour")
PARAPHRASES = ("It is well known that {}", "As everybody can look up, {}")
MAX_NEIGHBOURS = 10
OTHER_RIVALS = 12  # rivals from other graphs fill up to this many
_MIN_RIVALS = 3  # fewer of a kind: all of the graph's entities compete
_ASKING = re.compile(
    r"which|what|in|on|at|of|is|was|are|were|did|does|all|the|name|for|by|with|to|from"
)
Kinds = Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class Probe:
    """One prompt with the answer to look at (``original``), often another to compare, and its rivals."""

    case_id: int
    form: str
    item: int  # number of the form's probe; of facts as in ``edit.facts``
    prompt: str
    original: str
    other: str | None = None
    rivals: tuple[str, ...] = ()


def kind_of_question(question: str) -> str:
    """What a question asks for: "who", "where", or its first telling word in the singular."""
    for word in re.findall(r"[^\W\d_]+", question.casefold()):
        if word in {"who", "whom", "whose"}:
            return "who"
        if not _ASKING.fullmatch(word):
            return word.removesuffix("s") if word != "where" else word
    return ""


def kind_asked(edit: EditedGraph) -> str:
    """What an edit's own question asks for, or its prompt where no chain words it."""
    direct = edit.direct_fact
    return kind_of_question(direct.question) if direct else edit.prompt


def kinds_of(edits: Sequence[EditedGraph]) -> Kinds:
    """Entities of each kind over all edits."""
    kinds: dict[str, set[str]] = defaultdict(set)
    for edit in edits:
        for fact in edit.facts:
            kinds[kind_of_question(fact.question)].add(fact.object)
    return {kind: frozenset(entities) for kind, entities in kinds.items()}


def rivals_of(
    fact: ChainFact, edit: EditedGraph, kinds: Kinds, *, most: int | None = OTHER_RIVALS
) -> tuple[str, ...]:
    """Entities that compete with the fact's object: of its kind, not correct, all of its own graph first.

    Others by name fill up to ``most`` (None: all). Of fewer than three, the graph's, whatever their kind.
    """
    correct = {
        comparable(other.object)
        for other in edit.facts
        if (comparable(other.subject), other.prompt) == (comparable(fact.subject), fact.prompt)
    }
    excluded = correct | {comparable(fact.subject), comparable(edit.new)}
    entities = {entity for other in edit.facts for entity in (other.subject, other.object)}
    nearby = {comparable(entity) for entity in entities}

    def competing(candidates: Iterable[str]) -> list[str]:
        spellings = {comparable(entity): entity for entity in sorted(candidates, reverse=True)}
        order = sorted(set(spellings) - excluded, key=lambda name: (name not in nearby, name))
        return [spellings[name] for name in order]

    alike = competing(kinds.get(kind_of_question(fact.question), ()))
    if len(alike) < _MIN_RIVALS:
        return tuple(competing(entities)[:most])
    if most is None:
        return tuple(alike)
    nearby_count = sum(comparable(name) in nearby for name in alike)
    return tuple(alike[: max(most, nearby_count)])


def request_of(edit: EditedGraph, kinds: Kinds) -> EditRequest:
    """The edit as editors take it; rivals of the original serve APP as false answers."""
    direct = edit.direct_fact
    false = rivals_of(direct, edit, kinds)[:5] if direct else ()
    return EditRequest(
        edit.subject, edit.prompt, edit.new, (edit.original,), false, record=str(edit.case_id)
    )


def probes_of(edit: EditedGraph, edits: Sequence[EditedGraph], kinds: Kinds) -> list[Probe]:
    """All probes of an edit in ``FORMS``, ``edits`` being the set it belongs to."""
    probes: list[Probe] = []
    for item, fact in enumerate(edit.facts):
        new = edit.new if comparable(fact.object) == comparable(edit.original) else None
        rivals = rivals_of(fact, edit, kinds)
        probes.append(Probe(edit.case_id, "fact", item, fact.cloze, fact.object, new, rivals))
        if comparable(fact.subject) == comparable(edit.subject):
            statement = f"{fact.prompt.replace('{}', '___').strip()} {fact.object}"
            missing = f'Question: Who or what is missing in "{statement}"?\nAnswer:'
            whole = f"Is it true that {fact.cloze} {fact.object}? Answer yes or no."
            yes_no = f"Question: {whole}\nAnswer:"
            probes += [
                Probe(edit.case_id, "reverse", item, missing, fact.subject),
                Probe(edit.case_id, "yes_no", item, yes_no, "yes", "no"),
            ]
    direct = edit.prompt.replace("{}", edit.subject)
    probes.append(Probe(edit.case_id, "edit", 0, direct, edit.original, edit.new))
    for item, paraphrase in enumerate(PARAPHRASES):
        prompt = paraphrase.format(direct)
        probes.append(Probe(edit.case_id, "paraphrase", item, prompt, edit.original, edit.new))
    for item, fact in enumerate(neighbours_of(edit, edits)):
        probes.append(Probe(edit.case_id, "neighbour", item, fact.cloze, fact.object, edit.new))
    return probes


def neighbours_of(edit: EditedGraph, edits: Sequence[EditedGraph]) -> list[ChainFact]:
    """Facts about unedited subjects: of its relation, then with an object of its kind, then of its graph."""
    edited = {comparable(other.subject) for other in edits}
    facts = {
        fact.key: fact
        for other in edits
        for fact in other.facts
        if comparable(fact.subject) not in edited
        and comparable(fact.object) != comparable(edit.new)
    }
    direct = edit.direct_fact
    kind = kind_of_question(direct.question) if direct else ""
    relation = {edit.prompt} | ({direct.prompt} if direct else set())
    graph_keys = {fact.key for fact in edit.facts}
    of_relation: list[ChainFact] = []
    of_kind: list[ChainFact] = []
    of_graph: list[ChainFact] = []
    for fact in facts.values():
        if fact.prompt in relation:
            of_relation.append(fact)
        elif kind_of_question(fact.question) == kind:
            of_kind.append(fact)
        elif fact.key in graph_keys:
            of_graph.append(fact)
    return [*of_relation, *of_kind, *of_graph][:MAX_NEIGHBOURS]
