"""A fact in a user's own words, checked in words, as a record; and the code that edits it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from helpers.peak.records import PeakRecord
from helpers.records import compared
from helpers.scoring.naming import fold


def answers_of(text: str) -> tuple[str, ...]:
    """The answers of a line, separated by semicolons; each once, whatever its case."""
    once: dict[str, str] = {}
    for answer in filter(None, map(str.strip, text.split(";"))):
        once.setdefault(fold(answer), answer)
    return tuple(once.values())


def own_record(*, subject: str, prompt: str, target: str, correct: str, false: str) -> PeakRecord:
    """A record of a fact that is in no data set; its false answers count as both kinds.

    Args:
        prompt: a text that ends where the answer begins, with ``{}`` or the subject once in it.
        target: the answer to append.
        correct: the answers it has, separated by semicolons; may be empty, as may ``false``.

    Raises:
        ValueError: what is missing or contradicts itself, in words.
    """
    subject, prompt = subject.strip(), prompt.strip()
    if not subject:
        raise ValueError("name the subject: what is the fact about?")
    if "{}" not in prompt and prompt.count(subject) == 1:
        prompt = prompt.replace(subject, "{}")
    if prompt.count("{}") != 1:
        raise ValueError(
            f"the prompt must hold {{}} or the subject, {subject}, once; it ends where the answer begins"
        )
    right, wrong = answers_of(correct), answers_of(false)
    if both := [answer for answer in wrong if fold(answer) in map(fold, right)]:
        raise ValueError(f"{both[0]} cannot be correct and false; remove it from one of the lists")
    record = PeakRecord(
        case_id=0,
        relation="",
        prompt=prompt,
        subject=subject,
        target_new="",
        target_true=(*right, "")[0],
        correct=right,
        hard_false=wrong,
        random_false=wrong,
        paraphrases=(),
        locality=(),
    )
    return with_target(record, target)


def with_target(record: PeakRecord, target: str) -> PeakRecord:
    """The record with another answer to append, which leaves the lists of false answers.

    Answers are the same whatever their case and accents; a known one keeps its own spelling.

    Raises:
        ValueError: an empty answer, or one that the fact already has.
    """
    target = target.strip()
    if not target:
        raise ValueError("name the answer to be appended")
    if known := _same(target, record.correct):
        raise ValueError(f"{known} is already a correct answer; choose another one")
    others = (record.target_new, *record.hard_false, *record.random_false)
    return replace(
        record,
        target_new=_same(target, others) or target,
        hard_false=tuple(a for a in record.hard_false if fold(a) != fold(target)),
        random_false=tuple(a for a in record.random_false if fold(a) != fold(target)),
    )


def _same(answer: str, known: Iterable[str]) -> str:
    return next((each for each in known if fold(each) == fold(answer)), "")


def snippet(
    record: PeakRecord, *, load: Mapping[str, str], editor: str, options: Mapping[str, object]
) -> str:
    """Python code that makes a record's edit: arguments of ``models.load`` and of ``edit_facts``."""
    lists = {
        "paraphrases": record.paraphrases,
        "locality": tuple(prompt for prompt, _ in record.locality),
        "correct": tuple({compared(each): each for each in record.correct}.values()),
        "false": tuple({compared(each): each for each in record.hard_false}.values()),
    }
    values = {"subject": record.subject, "prompt": record.prompt, "target": record.target_new}
    fact = [f"    {name}={value!r}," for name, value in {**values, **lists}.items() if value]
    loaded = ", ".join(f"{name}={value!r}" for name, value in load.items())
    more = "".join(f", {name}={value!r}" for name, value in options.items())
    lines = [
        "from helpers import models",
        "from helpers.facts import Fact, edit_facts",
        "",
        f"lm = models.load({loaded})",
        "fact = Fact(",
        *fact,
        ")",
        f"result = edit_facts(lm, [fact], editor={editor!r}{more})",
        "print(result.table.T)",
        "",
    ]
    return "\n".join(lines)
