"""What MEND is trained on: facts to change, in several wordings, and facts that must stay.

A new answer is one that the same relation has for another subject but not for this one.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from helpers.paths import PACKAGED
from helpers.records import load_yaml
from helpers.triples.sources import packaged_triples
from helpers.triples.store import Fact

TEMPLATES = PACKAGED / "mend" / "templates.yaml"


@dataclass(frozen=True)
class TrainingRecord:
    """One edit to learn from: wordings of a fact, the edit prompt first, a new answer and a true one."""

    subject: str
    prompts: tuple[str, ...]
    target: str
    known: str
    relation: str


def packaged_records(*, per_relation: int = 80, seed: int = 0) -> list[TrainingRecord]:
    """Records from the packaged facts, at most ``per_relation`` of each relation, shuffled."""
    templates = load_yaml(TEMPLATES.read_text(encoding="utf-8"))
    facts = defaultdict(list)
    for fact in packaged_triples():
        if fact.relation in templates and fact.subject.isprintable():
            facts[fact.relation].append(fact)
    records = []
    for relation, own in sorted(facts.items()):
        generator = random.Random(f"{seed} {relation}")
        records += _of_relation(own, templates[relation], per_relation, generator)
    random.Random(seed).shuffle(records)
    return records


def _of_relation(
    facts: Sequence[Fact], templates: Sequence[str], count: int, generator: random.Random
) -> list[TrainingRecord]:
    answers = defaultdict(set)
    for fact in facts:
        answers[fact.subject].add(fact.object)
    others = sorted({fact.object for fact in facts})
    subjects = generator.sample(sorted(answers), len(answers))
    records: list[TrainingRecord] = []
    while subjects and len(records) < count:
        # A subject comes a second time, with another new answer, where there are too few of them.
        for subject in subjects[: count - len(records)]:
            free = [answer for answer in others if answer not in answers[subject]]
            if not free:
                continue
            wordings = generator.sample(list(templates), len(templates))
            prompts = tuple(wording.replace("{}", subject) for wording in wordings)
            known = generator.choice(sorted(answers[subject]))
            records.append(
                TrainingRecord(subject, prompts, generator.choice(free), known, facts[0].relation)
            )
        if len(records) >= 3 * len(subjects):
            break
    return records


def split(
    records: Iterable[TrainingRecord], *, held_out: int, seed: int = 0
) -> tuple[list[TrainingRecord], list[TrainingRecord]]:
    """Training and ``held_out`` records; no subject is on both sides. Records of held-out subjects beyond
    that number are left out altogether.
    """
    records = list(records)
    counts = Counter(record.subject for record in records)
    subjects = sorted(counts)
    random.Random(seed).shuffle(subjects)
    drawn: set[str] = set()
    for subject in subjects:
        if sum(counts[s] for s in drawn) < held_out:
            drawn.add(subject)
    training = [record for record in records if record.subject not in drawn]
    return training, [record for record in records if record.subject in drawn][:held_out]
