"""What MEND is trained on: facts to change, in several wordings, and facts that must stay.

Records are made from the packaged facts, or read from a file in the schema of PEAK and CounterFact.
A new answer is one that the same relation has for another subject but not for this one.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers.editing.request import RequestError
from helpers.paths import PACKAGED
from helpers.records import load_yaml
from helpers.triples.sources import packaged_triples
from helpers.triples.store import Fact

TEMPLATES = PACKAGED / "mend" / "templates.yaml"


@dataclass(frozen=True)
class TrainingRecord:
    """One edit to learn from.

    Attributes:
        subject: what the fact is about; records of one subject stay on one side of a split.
        prompts: wordings of the fact with the subject filled in, the edit prompt first.
        target: the new answer.
        known: an answer that is true.
        relation: identifier of the relation.
    """

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


def file_records(path: Path) -> list[TrainingRecord]:
    """Records of a file in the schema of PEAK or CounterFact; those without a paraphrase are left out.

    Raises:
        RequestError: a record lacks the rewrite or the list of paraphrases; names file and position.
    """
    records = []
    for place, item in enumerate(json.loads(path.read_text(encoding="utf-8"))):
        try:
            edit = item["requested_rewrite"]
            paraphrases = item.get("para_add_prompts", item.get("paraphrase_prompts"))
            prompts = (edit["prompt"].replace("{}", edit["subject"]), *paraphrases)
            records.append(
                TrainingRecord(
                    edit["subject"],
                    prompts,
                    edit["target_new"]["str"],
                    edit["target_true"]["str"],
                    edit.get("relation_id", ""),
                )
            )
        except (KeyError, TypeError) as error:
            raise RequestError(
                f"{path}, record {place}: {error!r}; a record needs requested_rewrite (prompt, subject,"
                " target_new, target_true) and paraphrase_prompts or para_add_prompts"
            ) from error
    return [record for record in records if len(record.prompts) > 1]


def split(
    records: Iterable[TrainingRecord], *, held_out: int, seed: int = 0
) -> tuple[list[TrainingRecord], list[TrainingRecord]]:
    """Training and held-out records; no subject is on both sides.

    Subjects are drawn until at least ``held_out`` records are held out, which are then cut to that
    number; records of drawn subjects beyond it are left out altogether.
    """
    records = list(records)
    subjects = sorted({record.subject for record in records})
    random.Random(seed).shuffle(subjects)
    by_subject = defaultdict(list)
    for record in records:
        by_subject[record.subject].append(record)
    drawn: set[str] = set()
    for subject in subjects:
        if sum(len(by_subject[s]) for s in drawn) >= held_out:
            break
        drawn.add(subject)
    training = [record for record in records if record.subject not in drawn]
    return training, [record for record in records if record.subject in drawn][:held_out]
