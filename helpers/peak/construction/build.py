"""PEAK records from triples: counterfactual edits and temporal ones (PEAK, Section 5, Appendix A.1),
and which of them a model knows well enough to be edited (the last paragraph of Section 5.1).

A fact is a subject with a relation and all its objects. Every fact has its own random generator, seeded
by the settings' seed and the fact's name, so records do not depend on each other.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from helpers.params import check_one_of, check_range
from helpers.peak.metrics import AnswerFilter
from helpers.peak.records import PeakRecord
from helpers.records import comparable
from helpers.scoring.answers import Question
from helpers.scoring.naming import mentions
from helpers.triples.graph import Graph
from helpers.triples.templates import SLOT, PromptTemplates, templates_of

HUB = 400  # neighbours of an entity with more links share little
LONGEST_LABEL = 60  # characters
SAMPLING_STEPS = (
    "relation has templates",
    "subjects distinct by name",
    "new answer after the cut-off",
    "enough correct answers",
    "object to append",
    "hard and random false answers",
    "locality prompts",
    "within the relation's share",
)
KNOWN_STEPS = {  # what is missing, where a list of the record has too few answers left
    "correct": "model knows correct answers",
    "hard": "hard false answers left",
    "random": "random false answers left",
}
_TARGETS_TRIED = 30
_LOCALITY_TRIED = 12  # facts looked at for one locality prompt

Key = tuple[str, str]  # (subject, relation), the relation perhaps inverse
Choice = tuple[Sequence[str], Sequence[str], Sequence[str]]  # targets, correct, all known


@dataclass(frozen=True, kw_only=True)
class PeakSettings:
    """How records are made; pairs are the fewest and the most.

    Hard false answers are linked with o* directly (``link_steps`` 1, the paper); with 2, where there are
    too few, entities that share a neighbour with o* count too.
    """

    correct: tuple[int, int] = (5, 20)  # 10–20 in PEAK-CF, 4–15 in PEAK-T
    hard: tuple[int, int] = (5, 15)  # 5–19 in PEAK-CF, 1–15 in PEAK-T
    random_false: int = 10
    link_steps: int = 2
    paraphrases: int = 2
    locality: tuple[int, int] = (1, 6)
    per_relation: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("correct", "hard", "locality"):
            fewest, most = getattr(self, name)
            check_range(f"fewest of {name}", fewest, 0)
            check_range(f"most of {name}", most, max(fewest, 1))
        for name in ("random_false", "paraphrases", "seed"):
            check_range(name, getattr(self, name), 0)
        check_one_of("link_steps", self.link_steps, (1, 2))
        if self.per_relation is not None:
            check_range("per_relation", self.per_relation, 1)


@dataclass(frozen=True)
class Built:
    """Records, and how many facts were lost at which step on the way."""

    records: tuple[PeakRecord, ...]
    lost: Mapping[str, int]

    def funnel(self) -> list[tuple[str, int]]:
        """Facts left after each step that loses any, in the order of the steps."""
        facts_left = len(self.records) + sum(self.lost.values())
        funnel_rows = [("facts (subject, relation)", facts_left)]
        for step in (step for step in SAMPLING_STEPS if step in self.lost):
            facts_left -= self.lost[step]
            funnel_rows.append((step, facts_left))
        return funnel_rows


def build_counterfactual(
    graph: Graph,
    templates: Mapping[str, PromptTemplates],
    *,
    settings: PeakSettings,
    relations: Sequence[str] = (),
) -> Built:
    """Counterfactual records (PEAK-CF) of these relations, by default of every one with templates."""
    answers_of_relation: dict[str, set[str]] = defaultdict(set)
    for (_, relation), answers in graph.answers.items():
        answers_of_relation[relation] |= set(answers)

    def choose(key: Key) -> Choice | str:
        correct_ids = sorted(graph.answers[key])
        if len(correct_ids) < settings.correct[0]:
            return "enough correct answers"
        correct = _usable(graph, key, correct_ids)
        types_of_correct: set[str] = set()
        for object_id in correct:
            types_of_correct |= graph.entities[object_id].types
        _, relation = key
        other_answers = sorted(answers_of_relation[relation] - set(correct_ids))
        targets = [
            object_id
            for object_id in other_answers
            if not types_of_correct.isdisjoint(graph.entities[object_id].types)
        ]
        return targets, correct, correct_ids

    return _Maker(graph, templates, settings).build(choose, relations)


def build_temporal(
    graph: Graph,
    templates: Mapping[str, PromptTemplates],
    *,
    cutoff: str,
    until: str,
    settings: PeakSettings,
) -> Built:
    """Temporal records (PEAK-T): an answer that holds since the cut-off or later is appended.

    Answers without a date count as older. Facts from ``until`` on, such as announced ones, are
    ignored. Both are ISO dates or years.
    """

    def choose(key: Key) -> Choice | str:
        start_of_answer = {
            object_id: edge.start for object_id, edge in sorted(graph.answers[key].items())
        }
        new_answers = [
            object_id
            for object_id, start in start_of_answer.items()
            if start and cutoff <= start < until
        ]
        if not new_answers:
            return "new answer after the cut-off"
        older_answers = [
            object_id for object_id, start in start_of_answer.items() if not start or start < cutoff
        ]
        targets = _usable(graph, key, new_answers)
        correct = _usable(graph, key, older_answers)
        return targets, correct, list(start_of_answer)

    return _Maker(graph, templates, settings).build(choose)


class Linked:
    """Which entities are linked with which, in either direction, by any relation.

    Hard false answers are linked with o* and share a type with it; random ones share the type alone.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._of_type: dict[str, set[str]] = defaultdict(set)
        for entity in graph.entities.values():
            for kind in entity.types:
                self._of_type[kind].add(entity.id)

    def near(self, identifier: str, steps: int = 1) -> set[str]:
        """Entities linked directly; with two ``steps`` those that share a neighbour, no hub, as well."""
        neighbours = self.graph.neighbours
        linked_ids = set(neighbours.get(identifier, ()))
        for neighbour in tuple(linked_ids) if steps == 2 else ():
            if len(neighbours[neighbour]) <= HUB:
                linked_ids |= neighbours[neighbour]
        return linked_ids - {identifier}

    def false_answers(
        self, target: str, *, excluded: Iterable[str], settings: PeakSettings, rng: random.Random
    ) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """Labels of hard and of random false answers to o*, none excluded; None where too few."""
        excluded_labels = {comparable(label) for label in excluded}
        types_of_target = self.graph.entities[target].types
        peers: set[str] = set()  # entities that share a type with o*
        for type_name in types_of_target:
            peers |= self._of_type[type_name]
        peers.discard(target)
        for steps in range(1, settings.link_steps + 1):
            linked_ids = self.near(target, steps)
            hard_labels = self._sample(linked_ids & peers, excluded_labels, settings.hard[1], rng)
            if len(hard_labels) < settings.hard[0]:
                continue
            with_hard = excluded_labels | {comparable(label) for label in hard_labels}
            random_labels = self._sample(peers - linked_ids, with_hard, settings.random_false, rng)
            if len(random_labels) == settings.random_false:
                return hard_labels, random_labels
        return None

    def _sample(
        self,
        identifiers: Iterable[str],
        taken_labels: set[str],
        most_labels: int,
        rng: random.Random,
    ) -> tuple[str, ...]:
        ordered_ids = sorted(identifiers)
        label_by_key: dict[str, str] = {}
        enough = most_labels + len(taken_labels)  # even if all taken are drawn
        draw_count = min(len(ordered_ids), enough)
        for identifier in rng.sample(ordered_ids, draw_count):
            label = self.graph.label(identifier)
            if comparable(label) not in taken_labels and len(label_by_key) < most_labels:
                label_by_key.setdefault(comparable(label), label)
        return tuple(label_by_key.values())


class _Maker:
    def __init__(
        self, graph: Graph, templates: Mapping[str, PromptTemplates], settings: PeakSettings
    ) -> None:
        self.graph = graph
        self.templates = templates
        self.settings = settings
        self.linked = Linked(graph)
        self.by_answer: dict[str, list[Key]] = defaultdict(list)
        for key in sorted(key for key in graph.answers if key[1] in templates):
            for answer in graph.answers[key]:
                self.by_answer[answer].append(key)

    def build(self, choose: Callable[[Key], Choice | str], relations: Sequence[str] = ()) -> Built:
        """Try every fact; number the records; a ``UserError`` for a relation without templates."""
        graph = self.graph
        settings = self.settings
        templates = {
            name: templates_of(self.templates, name) for name in relations or self.templates
        }
        records: list[PeakRecord] = []
        lost_at_step = Counter[str]()
        record_counts = Counter[str]()
        names_used: set[tuple[str, str]] = set()
        keys = sorted(key for key in graph.answers if not relations or key[1] in templates)
        for key in random.Random(settings.seed).sample(keys, len(keys)):
            subject, relation = key
            outcome: PeakRecord | str
            subject_and_relation = (comparable(graph.label(subject)), relation)
            if relation not in templates:
                outcome = "relation has templates"
            elif subject_and_relation in names_used:
                outcome = "subjects distinct by name"
            else:
                choice = choose(key)
                outcome = choice if isinstance(choice, str) else self.make(key, *choice)
                # Asked last, so that the funnel's other steps report what the facts allow.
                if (
                    isinstance(outcome, PeakRecord)
                    and record_counts[relation] == settings.per_relation
                ):
                    outcome = "within the relation's share"
            if isinstance(outcome, str):
                lost_at_step[outcome] += 1
            else:
                # The first few records mix relations: one of each, then the next of each.
                records.append(replace(outcome, case_id=record_counts[relation]))
                record_counts[relation] += 1
                names_used.add(subject_and_relation)
        records.sort(key=lambda record: record.case_id)  # stable: the drawn order stays
        numbered = (replace(record, case_id=number) for number, record in enumerate(records))
        return Built(tuple(numbered), lost_at_step)

    def make(
        self, key: Key, targets: Sequence[str], correct: Sequence[str], known: Sequence[str]
    ) -> PeakRecord | str:
        """The record of one fact, or the step at which its best target fails."""
        settings = self.settings
        graph = self.graph
        rng = random.Random(f"{settings.seed}/{key[1]}/{key[0]}")
        if len(correct) < settings.correct[0]:
            return "enough correct answers"
        correct_ids = rng.sample(list(correct), min(settings.correct[1], len(correct)))
        wordings = self.templates[key[1]]
        prompt = rng.choice(wordings.clozes)
        other_wordings = [wording for wording in wordings.all if wording != prompt]
        other_wordings = rng.sample(other_wordings, min(settings.paraphrases, len(other_wordings)))
        subject = graph.label(key[0])
        known_labels = {comparable(graph.label(object_id)) for object_id in (*known, key[0])}
        failed_steps = ["object to append"]
        for target in rng.sample(list(targets), min(_TARGETS_TRIED, len(targets))):
            target_label = graph.label(target)
            # A temporal o* is itself known; what must not happen is a twin among O.
            keys_of_correct = {comparable(graph.label(object_id)) for object_id in correct_ids}
            is_twin = comparable(target_label) in keys_of_correct
            if is_twin or mentions(prompt.replace(SLOT, subject), [target_label]):
                continue
            excluded = known_labels | {comparable(target_label)}
            false_lists = self.linked.false_answers(
                target, excluded=excluded, settings=settings, rng=rng
            )
            if false_lists is None:
                failed_steps.append("hard and random false answers")
                continue
            locality = self.locality(key, correct_ids, target_label, rng)
            if len(locality) < settings.locality[0]:
                failed_steps.append("locality prompts")
                continue
            correct_labels = tuple(graph.label(object_id) for object_id in correct_ids)
            paraphrases = tuple(
                other_wording.replace(SLOT, subject) for other_wording in other_wordings
            )
            answer_fields = (correct_labels[0], correct_labels, *false_lists, paraphrases, locality)
            return PeakRecord(0, key[1], prompt, subject, target_label, *answer_fields)
        return max(failed_steps, key=SAMPLING_STEPS.index)

    def locality(
        self, fact: Key, correct: Collection[str], target_label: str, rng: random.Random
    ) -> tuple[tuple[str, str], ...]:
        """Prompts about other subjects whose answer is one of O and never o* (PEAK, Section 5.1)."""
        graph = self.graph
        prompts: list[tuple[str, str]] = []
        subject = comparable(graph.label(fact[0]))
        for answer in rng.sample(list(correct), len(correct)):
            if len(prompts) == self.settings.locality[1]:
                break
            answer_label = graph.label(answer)
            keys_of_answer = self.by_answer.get(answer, [])
            drawn_keys = rng.sample(keys_of_answer, min(_LOCALITY_TRIED, len(keys_of_answer)))
            # The fewest answers first, so that the prompt asks for this one and not for a dozen.
            for other_key in sorted(drawn_keys, key=lambda key: len(graph.answers[key])):
                template = rng.choice(templates_of(self.templates, other_key[1]).clozes)
                prompt = template.replace(SLOT, graph.label(other_key[0]))
                other_answers = {
                    comparable(graph.label(answer_id)) for answer_id in graph.answers[other_key]
                }
                if (
                    comparable(graph.label(other_key[0])) == subject
                    or comparable(target_label) in other_answers
                ):
                    continue
                if not mentions(prompt, [answer_label, target_label]):
                    prompts.append((prompt, answer_label))
                    break
        return tuple(prompts)


def _usable(graph: Graph, key: Key, identifiers: Iterable[str]) -> list[str]:
    """Objects whose labels differ and are not given away by the subject."""
    subject = graph.label(key[0])
    by_label: dict[str, str] = {}
    for identifier in identifiers:
        label = graph.label(identifier)
        if len(label) <= LONGEST_LABEL and SLOT not in label and not mentions(subject, [label]):
            by_label.setdefault(comparable(label), identifier)
    return list(by_label.values())


@dataclass(frozen=True, kw_only=True)
class FilterSettings(AnswerFilter):
    """What a model must know: ``least_correct`` answers of a record, by the filter's rule."""

    least_correct: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("least_correct", self.least_correct, 0)


@dataclass(frozen=True)
class Filtered:
    """Records that pass, and a table of what every record keeps.

    ``table``: case_id (before renumbering), relation, subject, for each list its size and how much
    of it is kept, the ``step`` that fails (``""`` for none), and the mean probability of each list.
    """

    records: tuple[PeakRecord, ...]
    table: pd.DataFrame

    def funnel(self) -> list[tuple[str, int]]:
        """Records left after each step."""
        lost_at_steps = [int((self.table["step"] == step).sum()) for step in KNOWN_STEPS.values()]
        records_left = len(self.table) - np.cumsum(lost_at_steps)
        return list(zip(KNOWN_STEPS.values(), records_left.tolist(), strict=True))


def list_questions(records: Sequence[PeakRecord]) -> list[Question]:
    """Edit prompt and all answers of each record: correct, hard false, random false."""
    return [
        Question(record.edit_prompt, (*record.correct, *record.hard_false, *record.random_false))
        for record in records
    ]


def apply_filter(
    records: Sequence[PeakRecord], scores: pd.DataFrame, settings: FilterSettings
) -> Filtered:
    """Keep the records that a model knows, with their lists complete: an evaluation filters again.

    ``scores`` are of ``questions(records)``, as ``score_answers`` returns them.
    """
    passed_records: list[PeakRecord] = []
    rows_of_records = []
    by_question = {
        question_index: question_scores.sort_values("answer")
        for question_index, question_scores in scores.groupby("question")
    }
    for index, record in enumerate(records):
        answers = (record.correct, record.hard_false, record.random_false)
        record_scores = by_question[index]["mean"].to_numpy()
        list_ends = np.cumsum([len(list_answers) for list_answers in answers])
        scores_by_list = np.split(record_scores, list_ends[:-1])
        kept_answers = settings.keep(*scores_by_list)
        record_row: dict[str, object] = {
            "case_id": record.case_id,
            "relation": record.relation,
            "subject": record.subject,
            "step": "",
        }
        for list_name, list_scores, kept_count in zip(
            KNOWN_STEPS, scores_by_list, map(len, kept_answers), strict=True
        ):
            record_row |= {list_name: len(list_scores), f"{list_name}_kept": kept_count}
            record_row[f"{list_name}_probability"] = float(np.exp(list_scores).mean())
            if kept_count < (settings.least_correct if list_name == "correct" else 1):
                record_row["step"] = record_row["step"] or KNOWN_STEPS[list_name]
        rows_of_records.append(record_row)
        if not record_row["step"]:
            passed_records.append(replace(record, case_id=len(passed_records)))
    return Filtered(tuple(passed_records), pd.DataFrame(rows_of_records))
