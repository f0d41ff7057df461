"""Packaged facts as demonstrations for editing in context, and as prompts about other facts.

They are the records of PEAK-mini-CF, each with paraphrases and with prompts of other facts. For an edit those
are excluded that name its subject, its new answer or one of its known answers, in whole words, so that
nothing which is asked later can be read in a demonstration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from helpers import UserError
from helpers.editing.request import EditRequest
from helpers.editing.retrieval import Bm25, words
from helpers.kept import file_digest
from helpers.paths import PACKAGED
from helpers.records import comparable, read_json, read_text

FILE = PACKAGED / "peak" / "peak-mini-cf.json"
BACKGROUND = 100  # prompts about other facts
ORDER_OF_KINDS = ("copy", "update", "update", "update", "retain", "retain", "retain", "retain")


@dataclass(frozen=True)
class DemonstrationRecord:
    """A fact to edit, asked in other words too, and other facts that the edit leaves alone."""

    prompt: str
    target: str
    paraphrases: tuple[str, ...]
    others: tuple[tuple[str, str], ...]  # prompts with their answers

    @property
    def statement(self) -> str:
        """The prompt with the new answer."""
        return f"{self.prompt} {self.target}"

    @property
    def texts(self) -> list[str]:
        """All of its texts: the statement, the paraphrases, and the other prompts with their answers."""
        other_texts = [f"{prompt} {answer}" for prompt, answer in self.others]
        return [self.statement, *self.paraphrases, *other_texts]

    def demonstration(self, kind: str) -> str:
        """The demonstration's text: the new fact, then a prompt with the answer it has after the edit.

        By ``kind`` the prompt is the fact's own (copy), a paraphrase (update) or another fact's (retain).
        """
        prompt, answer = self.prompt, self.target
        if kind == "update":
            prompt = self.paraphrases[0]
        elif kind == "retain":
            prompt, answer = self.others[0]
        return f"New Fact: {self.statement}\nPrompt: {prompt} {answer}\n\n"


@lru_cache(maxsize=1)
def demonstration_records() -> tuple[DemonstrationRecord, ...]:
    """All packaged records that have a paraphrase and another fact."""
    records = []
    for item in read_json(read_text(FILE), str(FILE)):
        rewrite = item["requested_rewrite"]
        record = DemonstrationRecord(
            prompt=rewrite["prompt"].replace("{}", rewrite["subject"]),
            target=rewrite["target_new"]["str"],
            paraphrases=tuple(item["para_add_prompts"]),
            others=tuple((prompt, answer) for prompt, answer in item["neighborhood_prompts"]),
        )
        if record.paraphrases and record.others:
            records.append(record)
    return tuple(records)


def digest() -> str:
    """Digest of the file that holds the records, for the settings of what is made with them."""
    return file_digest(FILE)


def records_without(request: EditRequest) -> list[DemonstrationRecord]:
    """The records that name neither the request's subject nor one of its answers."""
    names = (request.subject, request.target, *request.correct)
    return [record for record in demonstration_records() if not names_one(record.texts, names)]


def names_one(texts: Sequence[str], names: Sequence[str]) -> bool:
    """Whether one of the names is in one of the texts, its words in a row; whatever joins these to others.

    So "Guinea" is in "Guinea-Bissau": what might be named counts as named, but "Al" is not in "also".
    """
    spaced_texts = [_spaced(text) for text in texts]
    return any(_spaced(name) in text for name in names for text in spaced_texts)


@lru_cache(1 << 14)
def _spaced(text: str) -> str:
    """The text's words in lower case, with a blank before and after each."""
    return f" {' '.join(words(comparable(text)))} "


def background_prompts(subjects: Sequence[str] = ()) -> list[str]:
    """Prompts of packaged facts that do not name the subjects, at most ``BACKGROUND``.

    Those in which a subject occurs inside a word, as "Al" in "also", come last.
    """
    prompts_with_subjects = [_prompts_with(subject) for subject in subjects]
    naming = {prompt for found in prompts_with_subjects for prompt in found.naming}
    containing = {prompt for found in prompts_with_subjects for prompt in found.containing}
    prompts = [prompt for prompt in _prompts_of_others() if prompt not in naming]
    return sorted(prompts, key=containing.__contains__)[:BACKGROUND]


@lru_cache(maxsize=1)
def _prompts_of_others() -> tuple[str, ...]:
    """The prompts of all records' other facts, each once."""
    return tuple(
        dict.fromkeys(prompt for record in demonstration_records() for prompt, _ in record.others)
    )


class PromptsWithSubject(NamedTuple):
    """The prompts of other facts in which a subject occurs."""

    naming: frozenset[str]  # as words
    containing: frozenset[str]  # as letters, maybe inside a word


@lru_cache(1 << 14)  # a memory that grows asks about the same subjects again
def _prompts_with(subject: str) -> PromptsWithSubject:
    prompts = _prompts_of_others()
    letters = comparable(subject)
    return PromptsWithSubject(
        frozenset(prompt for prompt in prompts if names_one([prompt], [subject])),
        frozenset(prompt for prompt in prompts if letters in comparable(prompt)),
    )


def nearest_demonstrations(request: EditRequest, statement: str, count: int) -> list[str]:
    """``count`` demonstrations from the records nearest to the statement by BM25, the nearest last.

    ``statement`` is the request's fact as a text.

    Raises:
        UserError: fewer records are left without the request's own names.
    """
    records = records_without(request)
    if len(records) < count:
        raise UserError(
            f"record {request.record or request.text!r}: {len(records)} demonstrations do not name its"
            f" subject or answers, {count} are needed; lower k"
        )
    scores = Bm25([record.statement for record in records]).scores(statement)
    nearest = sorted(range(len(records)), key=lambda index: (-scores[index], index))[:count]
    return [
        records[index].demonstration(ORDER_OF_KINDS[rank % len(ORDER_OF_KINDS)])
        for rank, index in reversed(list(enumerate(nearest)))
    ]
