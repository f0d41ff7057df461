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
    direct_fact = edit.direct_fact
    return kind_of_question(direct_fact.question) if direct_fact else edit.prompt


def kinds_of(edits: Sequence[EditedGraph]) -> Kinds:
    """Entities of each kind over all edits."""
    entities_by_kind: dict[str, set[str]] = defaultdict(set)
    for edit in edits:
        for fact in edit.facts:
            entities_by_kind[kind_of_question(fact.question)].add(fact.object)
    return {kind: frozenset(entities) for kind, entities in entities_by_kind.items()}


def rivals_of(
    fact: ChainFact, edit: EditedGraph, entities_by_kind: Kinds, *, most: int | None = OTHER_RIVALS
) -> tuple[str, ...]:
    """Entities that compete with the fact's object: of its kind, not correct, all of its own graph first.

    Others by name fill up to ``most`` (None: all). Of fewer than three, the graph's, whatever their kind.
    """
    correct_objects = {
        comparable(other_fact.object)
        for other_fact in edit.facts
        if (comparable(other_fact.subject), other_fact.prompt)
        == (comparable(fact.subject), fact.prompt)
    }
    excluded_names = correct_objects | {comparable(fact.subject), comparable(edit.new)}
    entities_in_graph = {
        entity for other_fact in edit.facts for entity in (other_fact.subject, other_fact.object)
    }
    names_in_graph = {comparable(entity) for entity in entities_in_graph}

    def competing(candidates: Iterable[str]) -> list[str]:
        spellings = {comparable(entity): entity for entity in sorted(candidates, reverse=True)}
        ordered_names = sorted(
            set(spellings) - excluded_names,
            key=lambda entity_name: (entity_name not in names_in_graph, entity_name),
        )
        return [spellings[entity_name] for entity_name in ordered_names]

    rivals_of_kind = competing(entities_by_kind.get(kind_of_question(fact.question), ()))
    if len(rivals_of_kind) < _MIN_RIVALS:
        return tuple(competing(entities_in_graph)[:most])
    if most is None:
        return tuple(rivals_of_kind)
    count_in_graph = sum(
        comparable(entity_name) in names_in_graph for entity_name in rivals_of_kind
    )
    return tuple(rivals_of_kind[: max(most, count_in_graph)])


def request_of(edit: EditedGraph, entities_by_kind: Kinds) -> EditRequest:
    """The edit as editors take it; rivals of the original serve APP as false answers."""
    direct_fact = edit.direct_fact
    false_answers = rivals_of(direct_fact, edit, entities_by_kind)[:5] if direct_fact else ()
    return EditRequest(
        edit.subject,
        edit.prompt,
        edit.new,
        (edit.original,),
        false_answers,
        record=str(edit.case_id),
    )


def probes_of(
    edit: EditedGraph, edits: Sequence[EditedGraph], entities_by_kind: Kinds
) -> list[Probe]:
    """All probes of an edit in ``FORMS``, ``edits`` being the set it belongs to."""
    probes: list[Probe] = []
    for item, fact in enumerate(edit.facts):
        new_answer = edit.new if comparable(fact.object) == comparable(edit.original) else None
        rivals = rivals_of(fact, edit, entities_by_kind)
        probes.append(
            Probe(edit.case_id, "fact", item, fact.cloze, fact.object, new_answer, rivals)
        )
        if comparable(fact.subject) == comparable(edit.subject):
            statement_with_gap = f"{fact.prompt.replace('{}', '___').strip()} {fact.object}"
            reverse_prompt = f'Question: Who or what is missing in "{statement_with_gap}"?\nAnswer:'
            yes_no_question = f"Is it true that {fact.cloze} {fact.object}? Answer yes or no."
            yes_no_prompt = f"Question: {yes_no_question}\nAnswer:"
            probes += [
                Probe(edit.case_id, "reverse", item, reverse_prompt, fact.subject),
                Probe(edit.case_id, "yes_no", item, yes_no_prompt, "yes", "no"),
            ]
    edit_prompt = edit.prompt.replace("{}", edit.subject)
    probes.append(Probe(edit.case_id, "edit", 0, edit_prompt, edit.original, edit.new))
    for item, paraphrase in enumerate(PARAPHRASES):
        paraphrase_prompt = paraphrase.format(edit_prompt)
        probes.append(
            Probe(edit.case_id, "paraphrase", item, paraphrase_prompt, edit.original, edit.new)
        )
    for item, fact in enumerate(neighbours_of(edit, edits)):
        probes.append(Probe(edit.case_id, "neighbour", item, fact.cloze, fact.object, edit.new))
    return probes


def neighbours_of(edit: EditedGraph, edits: Sequence[EditedGraph]) -> list[ChainFact]:
    """Facts about unedited subjects: of its relation, then with an object of its kind, then of its graph."""
    edited_subjects = {comparable(other_edit.subject) for other_edit in edits}
    facts_about_others = {
        fact.key: fact
        for other_edit in edits
        for fact in other_edit.facts
        if comparable(fact.subject) not in edited_subjects
        and comparable(fact.object) != comparable(edit.new)
    }
    direct_fact = edit.direct_fact
    kind_of_edit = kind_of_question(direct_fact.question) if direct_fact else ""
    prompts_of_relation = {edit.prompt} | ({direct_fact.prompt} if direct_fact else set())
    keys_in_graph = {fact.key for fact in edit.facts}
    of_relation: list[ChainFact] = []
    of_kind: list[ChainFact] = []
    of_graph: list[ChainFact] = []
    for fact in facts_about_others.values():
        if fact.prompt in prompts_of_relation:
            of_relation.append(fact)
        elif kind_of_question(fact.question) == kind_of_edit:
            of_kind.append(fact)
        elif fact.key in keys_in_graph:
            of_graph.append(fact)
    return [*of_relation, *of_kind, *of_graph][:MAX_NEIGHBOURS]
