"""What is odd in PEAK records, told per record instead of silently repaired."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from helpers.peak.schema import PeakRecord

RANDOM_FALSE_ANSWERS = 10  # per record, as published
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

    Kinds: ``correct answer among hard false``, ``appended answer among correct``,
    ``appended answer among random false``, ``appended answer among hard false up to case``,
    ``correct answers equal up to case``,
    ``unusual number of random false``, ``escaped characters``, ``prompt is a question``,
    ``subject and relation shared``, ``paraphrase without subject``,
    ``locality answer not correct``.
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
    if overlap := [answer for answer in record.hard_false if answer in record.correct]:
        yield "correct answer among hard false", "; ".join(overlap)
    if record.target_new in record.correct:
        yield "appended answer among correct", record.target_new
    lowered = record.target_new.lower()
    if twins := [answer for answer in record.hard_false if answer.lower() == lowered]:
        yield "appended answer among hard false up to case", "; ".join(twins)
    if record.target_new in record.random_false:
        yield "appended answer among random false", record.target_new
    times = Counter(answer.lower() for answer in record.correct)
    if twins := [answer for answer in record.correct if times[answer.lower()] > 1]:
        yield "correct answers equal up to case", "; ".join(twins)
    if (number := len(record.random_false)) != RANDOM_FALSE_ANSWERS:
        yield "unusual number of random false", str(number)
    known = set(record.correct)
    if others := [answer for _, answer in record.locality if answer not in known]:
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
    known = [other.target_new for other in others if other.target_new in record.correct]
    yield (
        "subject and relation shared",
        f"{ids}; correct here: {'; '.join(known)}" if known else ids,
    )
