"""What is odd in PEAK records, told per record instead of silently repaired."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from helpers.peak.schema import PeakRecord
from helpers.records import compared

RANDOM_FALSE_ANSWERS = 10  # per record, as published
_NAME = {"target": "appended", "correct": "correct", "hard": "hard false", "random": "random false"}
_ESCAPE = re.compile(r"\\u[0-9a-fA-F]{4}")


@dataclass(frozen=True)
class PeakWarning:
    """One anomaly of one record.

    Attributes:
        case_id: the record.
        kind: what is odd, one of a few fixed names (see ``find_anomalies``).
        detail: the strings concerned.
    """

    case_id: int
    kind: str
    detail: str


def find_anomalies(records: Sequence[PeakRecord]) -> list[PeakWarning]:
    """Anomalies in record order.

    A name that stands in two lists, or twice in one, is told once, by its first place:
    ``appended answer among hard false``, ``correct answer repeated``. The other kinds:
    ``unusual number of random false``, ``escaped characters``, ``prompt is a question``,
    ``subject and relation shared``, ``paraphrase without subject``,
    ``locality answer not correct``. Names are ``compared``, as in strict lists.
    """
    shared: dict[tuple[str, str], list[PeakRecord]] = defaultdict(list)
    for record in records:
        shared[record.subject, record.relation].append(record)
    return [
        PeakWarning(record.case_id, kind, detail)
        for record in records
        for kind, detail in (
            *_between_lists(record),
            *_within_texts(record),
            *_shared_fact(record, shared[record.subject, record.relation]),
        )
    ]


def _between_lists(record: PeakRecord) -> Iterator[tuple[str, str]]:
    """Contradictions between the answer lists."""
    places = {compared(record.subject): "subject"}
    found: dict[str, list[str]] = defaultdict(list)
    for name, answers in record.lists.items():
        here = f"{_NAME[name]} answer"
        for answer in answers:
            first = places.get(compared(answer), "")
            if first == here:
                found[f"{here} repeated"].append(answer)
            elif first:
                found[f"{first} among {_NAME[name]}"].append(answer)
            else:
                places[compared(answer)] = here
    yield from ((kind, "; ".join(answers)) for kind, answers in found.items())
    if (number := len(record.random_false)) != RANDOM_FALSE_ANSWERS:
        yield "unusual number of random false", str(number)
    known = set(map(compared, record.correct))
    if others := [answer for _, answer in record.locality if compared(answer) not in known]:
        yield "locality answer not correct", "; ".join(others)


def _within_texts(record: PeakRecord) -> Iterator[tuple[str, str]]:
    """Texts a language model may read otherwise than meant."""
    answers = (record.target_new, *record.correct, *record.hard_false, *record.random_false)
    if escaped := [answer for answer in answers if _ESCAPE.search(answer)]:
        yield "escaped characters", "; ".join(escaped)
    prompts = (record.edit_prompt, *record.paraphrases)
    if questions := [prompt for prompt in prompts if prompt.endswith("?")]:
        yield "prompt is a question", "; ".join(questions)
    if strays := [prompt for prompt in record.paraphrases if record.subject not in prompt]:
        yield "paraphrase without subject", "; ".join(strays)


def _shared_fact(record: PeakRecord, group: Sequence[PeakRecord]) -> Iterator[tuple[str, str]]:
    """Other records about the same subject and relation, which append other answers."""
    if len(group) == 1:
        return
    others = [other for other in group if other is not record]
    ids = "with case_id " + ", ".join(str(other.case_id) for other in others)
    correct = set(map(compared, record.correct))
    known = [other.target_new for other in others if compared(other.target_new) in correct]
    yield (
        "subject and relation shared",
        f"{ids}; correct here: {'; '.join(known)}" if known else ids,
    )
