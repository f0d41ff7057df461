"""PEAK records from triples: counterfactual edits and temporal ones (PEAK, Section 5).

A fact is a subject with a relation and all its objects. Counterfactual: an object o* of the
objects' type that is none of them is to be appended. Temporal: an object that became true after a
cut-off date is to be appended to the older ones. Every fact has its own random generator, seeded by
the settings' seed and the fact's name, so records do not depend on each other.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from helpers.peak.construction.false_answers import Linked, sample_false_answers
from helpers.peak.construction.record_prompts import (
    Key,
    choose_prompts,
    facts_by_answer,
    locality_prompts,
    mentions,
)
from helpers.peak.construction.settings import STEPS, Built, PeakSettings, Rejection
from helpers.peak.schema import PeakRecord
from helpers.triples.graph import Graph
from helpers.triples.templates import SLOT, PromptTemplates, templates_of

LONGEST_LABEL = 60  # characters
_TARGETS_TRIED = 30


Choice = tuple[Sequence[str], Sequence[str], Sequence[str]]  # targets, correct, all known


def build_counterfactual(
    graph: Graph,
    templates: Mapping[str, PromptTemplates],
    *,
    settings: PeakSettings | None = None,
    relations: Iterable[str] | None = None,
) -> Built:
    """Counterfactual records (PEAK-CF).

    Args:
        graph: facts with labels and types.
        templates: wordings by relation, ``re_`` for inverses.
        relations: the relations to use; default: every one that has templates.

    Raises:
        TemplateError: a relation asked for has no templates.
    """
    settings = settings or PeakSettings()
    ranges: dict[str, set[str]] = defaultdict(set)
    for (_, relation), answers in graph.answers.items():
        ranges[relation] |= set(answers)

    def choose(key: Key) -> Choice | str:
        known = sorted(graph.answers[key])
        if len(known) < settings.correct[0]:
            return "enough correct answers"
        correct = _usable(graph, key, known)
        kinds = set().union(*(graph.entities[o].types for o in correct)) if correct else set()
        targets = [
            o
            for o in sorted(ranges[key[1]] - set(known))
            if not kinds.isdisjoint(graph.entities[o].types)
        ]
        return targets, correct, known

    return _build(graph, templates, settings, relations, choose)


def build_temporal(
    graph: Graph,
    templates: Mapping[str, PromptTemplates],
    *,
    cutoff: str,
    until: str | None = None,
    settings: PeakSettings | None = None,
    relations: Iterable[str] | None = None,
) -> Built:
    """Temporal records (PEAK-T): an answer that holds since the cut-off or later is appended.

    Answers without a date count as older than the cut-off.

    Args:
        graph: facts; those with a start date can become edits.
        cutoff: ISO date or year; the paper takes facts after 2021 (``"2022"``).
        until: ISO date from which on facts are ignored altogether, such as announced ones.
        settings: sizes, switches, seed; the paper has 4–15 correct and 1–15 hard false answers.
        relations: the relations to use; default: every one that has templates.

    Raises:
        TemplateError: a relation asked for has no templates.
    """

    def choose(key: Key) -> Choice | str:
        edges = graph.answers[key]
        new = [
            o for o, e in sorted(edges.items()) if e.start and cutoff <= e.start < (until or "~")
        ]
        if not new:
            return "new answer after the cut-off"
        older = [o for o, e in sorted(edges.items()) if not e.start or e.start < cutoff]
        return _usable(graph, key, new), _usable(graph, key, older), sorted(edges)

    return _build(graph, templates, settings or PeakSettings(), relations, choose)


def _build(
    graph: Graph,
    templates: Mapping[str, PromptTemplates],
    settings: PeakSettings,
    relations: Iterable[str] | None,
    choose: Callable[[Key], Choice | str],
) -> Built:
    """Try every fact; number the records."""
    if relations is not None:
        wanted = {relation: templates_of(templates, relation) for relation in relations}
    else:
        wanted = dict(templates)
    maker = _Maker(graph, templates, settings)
    records: list[PeakRecord] = []
    rejections: list[Rejection] = []
    made: Counter[str] = Counter()
    named: set[tuple[str, str]] = set()
    keys = sorted(key for key in graph.answers if relations is None or key[1] in wanted)
    for key in random.Random(settings.seed).sample(keys, len(keys)):
        subject, relation = key
        outcome: PeakRecord | str
        name = (graph.label(subject).casefold(), relation)
        if relation not in wanted:
            outcome = "relation has templates"
        elif name in named:
            outcome = "subjects told apart by name"
        else:
            choice = choose(key)
            outcome = choice if isinstance(choice, str) else maker.make(key, *choice)
            # Asked last, so that the funnel's other steps say what the facts themselves allow.
            if isinstance(outcome, PeakRecord) and made[relation] == settings.per_relation:
                outcome = "within the relation's share"
        if isinstance(outcome, str):
            rejections.append(Rejection(graph.label(subject), relation, outcome))
        else:
            records.append(outcome)
            made[relation] += 1
            named.add(name)
    return Built(_mixed(records), tuple(rejections))


def _mixed(records: Sequence[PeakRecord]) -> tuple[PeakRecord, ...]:
    """Numbered so that the first few records already mix relations: one of each, then the next."""
    ranks: Counter[str] = Counter()
    ranked = []
    for record in records:
        ranked.append((ranks[record.relation], record))
        ranks[record.relation] += 1
    ranked.sort(key=lambda pair: pair[0])  # stable: within a rank the drawn order stays
    return tuple(replace(record, case_id=i) for i, (_, record) in enumerate(ranked))


class _Maker:
    """Makes the record of one fact, or says at which step it fails."""

    def __init__(
        self, graph: Graph, templates: Mapping[str, PromptTemplates], settings: PeakSettings
    ) -> None:
        self.graph, self.templates, self.settings = graph, templates, settings
        self.linked = Linked(graph)
        self.by_answer = facts_by_answer(graph, templates)

    def make(
        self, key: Key, targets: Sequence[str], correct: Sequence[str], known: Sequence[str]
    ) -> PeakRecord | str:
        settings, graph = self.settings, self.graph
        rng = random.Random(f"{settings.seed}/{key[1]}/{key[0]}")
        if len(correct) < settings.correct[0]:
            return "enough correct answers"
        drawn = rng.sample(list(correct), min(settings.correct[1], len(correct)))
        prompt, others = choose_prompts(
            self.templates[key[1]], paraphrases=settings.paraphrases, rng=rng
        )
        subject = graph.label(key[0])
        labels = {graph.label(o).casefold() for o in (*known, key[0])}
        failed = ["object to append"]
        for target in rng.sample(list(targets), min(_TARGETS_TRIED, len(targets))):
            label = graph.label(target)
            # A temporal o* is itself known; what must not happen is a twin among O.
            if label.casefold() in {graph.label(o).casefold() for o in drawn} or mentions(
                prompt.replace(SLOT, subject), label
            ):
                continue
            false = self._false(target, labels | {label.casefold()}, rng)
            if false is None:
                failed.append("hard and random false answers")
                continue
            locality = locality_prompts(
                graph, self.templates, self.by_answer, fact=key, correct=drawn,
                target_label=label, number=settings.locality[1], rng=rng,
            )  # fmt: skip
            if len(locality) < settings.locality[0]:
                failed.append("locality prompts")
                continue
            answers = tuple(graph.label(o) for o in drawn)
            filled = tuple(other.replace(SLOT, subject) for other in others)
            return PeakRecord(0, key[1], prompt, subject, label, answers[0], answers,
                              *false, filled, locality)  # fmt: skip
        return max(failed, key=STEPS.index)  # how far the best target came

    def _false(
        self, target: str, excluded: set[str], rng: random.Random
    ) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        settings = self.settings
        return sample_false_answers(
            self.linked,
            target,
            excluded=excluded,
            hard=settings.hard,
            random_count=settings.random_false,
            random_type=settings.random_type,
            steps=settings.link_steps,
            rng=rng,
        )


def _usable(graph: Graph, key: Key, identifiers: Iterable[str]) -> list[str]:
    """Objects whose labels can be told apart and are not given away by the subject."""
    subject = graph.label(key[0])
    by_label: dict[str, str] = {}
    for identifier in identifiers:
        label = graph.label(identifier)
        if len(label) <= LONGEST_LABEL and SLOT not in label and not mentions(subject, label):
            by_label.setdefault(label.casefold(), identifier)
    return list(by_label.values())
