"""KLoB: sentences with one fact in three wordings (c), facts and chains (r), no fact at all (u).

Every sentence ends in ``" _"``, the slot of its answer. Files have one JSON value per line; the
official ones have no licence and are downloaded, never shipped. ``klob-mini-*`` are packaged
reconstructions in the same schema (``tools.klob_mini``).
"""

from __future__ import annotations

import random
from dataclasses import dataclass as plain_dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, TypeAdapter
from pydantic.dataclasses import dataclass

from helpers import UserError
from helpers.fetch import locate, official_files
from helpers.locating.query import Sentence, encode
from helpers.models import LanguageModel
from helpers.paths import PACKAGED
from helpers.records import read_all, read_text, without_slot

MINI = {subtask: PACKAGED / "klob" / f"klob-mini-{subtask}.jsonl" for subtask in "cru"}

Subtask = Literal["consistency", "relevance", "unbiasedness"]


def _checked_cloze(sentence: str) -> str:
    without_slot(sentence)
    return sentence


Text = Annotated[str, Field(pattern=r"\S")]
Cloze = Annotated[str, AfterValidator(_checked_cloze)]
Wordings = Annotated[tuple[Cloze, ...], Field(min_length=3, max_length=3)]


@dataclass(frozen=True)
class ConsistencyExample:
    """One fact of KLoB-c: (subject, relation, object), the relation as published, ``"native_(P103)"``."""

    prompts: Wordings
    fact: Annotated[tuple[Text, Text, Text], Field(alias="knowledge")]


@dataclass(frozen=True)
class RelevanceExample:
    """One fact and a two-hop chain that starts with it (KLoB-r): (subject, relation, object, relation,
    object). Keys are spelled as published.
    """

    fact: Annotated[tuple[Text, Text, Text], Field(alias="single_knowledge")]
    chain: Annotated[tuple[Text, Text, Text, Text, Text], Field(alias="knowledge_chain")]
    prompts: Annotated[Wordings, Field(alias="single_knowlege_prompts")]
    chain_prompt: Annotated[Cloze, Field(alias="knowlege_chain_prompt")]


Example = ConsistencyExample | RelevanceExample | str
SCHEMAS: dict[Subtask, TypeAdapter[Any]] = {
    "consistency": TypeAdapter(ConsistencyExample),
    "relevance": TypeAdapter(RelevanceExample),
    "unbiasedness": TypeAdapter(Cloze),
}


@plain_dataclass(frozen=True)
class Examples:
    """Examples of one subtask: their sentences (a chain's is the last), the relation of the first fact
    ("" without one), and their places in the file.
    """

    subtask: Subtask
    groups: tuple[tuple[Sentence, ...], ...]
    relations: tuple[str, ...]
    numbers: tuple[int, ...]

    @property
    def sentences(self) -> list[Sentence]:
        """The sentences of all groups, one after the other."""
        return [sentence for group in self.groups for sentence in group]


def read_examples(subtask: Subtask, source: str | Path = "klob-mini") -> dict[int, Any]:
    """A subtask's examples by their place in the file; a UserError names all lines that are none.

    ``source``: ``"klob"`` (official), ``"klob-mini"`` (packaged), a folder with files ``KLoB-c.jsonl``,
    ``KLoB-r.jsonl`` and ``KLoB-u.jsonl`` in the same schema, or one such file.
    """
    path = _file(subtask, source)
    # Not splitlines: JSON may hold other line separators than the line's end.
    errors = "replace" if source == "klob" else "strict"  # the published files are as they are
    file_lines = read_text(path, errors=errors).rstrip("\n").split("\n")
    named_lines = (
        (f"{path}, line {line_number}", file_line)
        for line_number, file_line in enumerate(file_lines, start=1)
    )
    return dict(enumerate(read_all(named_lines, SCHEMAS[subtask].validate_json)))


def load_examples(
    subtask: Subtask,
    source: str | Path = "klob-mini",
    *,
    count: int | None = None,
    seed: int = 0,
    lm: LanguageModel | None = None,
) -> Examples:
    """A random choice of a subtask's examples as sentences, in file order; all without a ``count``.

    With ``lm`` a UserError names the lines that this model cannot be asked.
    """
    examples = read_examples(subtask, source)
    if count is not None:
        if not 0 < count <= len(examples):
            raise UserError(f"{count} examples wanted, the file has {len(examples)}")
        sampled = random.Random(seed).sample(list(examples), count)
        examples = {example_number: examples[example_number] for example_number in sorted(sampled)}
    sentences_by_number = {
        example_number: _sentences(example) for example_number, example in examples.items()
    }
    if lm:
        path = _file(subtask, source)
        named_sentences = (
            (f"{path}, line {example_number + 1}", sentences)
            for example_number, sentences in sentences_by_number.items()
        )
        read_all(named_sentences, partial(encode, lm))
    relations = tuple(_relation(example) for example in examples.values())
    return Examples(subtask, tuple(sentences_by_number.values()), relations, tuple(examples))


def _relation(example: Example) -> str:
    return "" if isinstance(example, str) else example.fact[1]


def _sentences(example: Example) -> tuple[Sentence, ...]:
    if isinstance(example, str):
        return (Sentence(example),)
    subject, _, answer = example.fact
    clozes_and_answers = [(cloze, answer) for cloze in example.prompts]
    if isinstance(example, RelevanceExample):
        clozes_and_answers.append((example.chain_prompt, example.chain[-1]))
    sentences = []
    for cloze, answer in clozes_and_answers:
        # A subject that a hand-written sentence does not name verbatim is omitted.
        named_subject = subject if subject in cloze else None
        sentences.append(Sentence(cloze, answer, named_subject))
    return tuple(sentences)


def _file(subtask: Subtask, source: str | Path) -> Path:
    letter = subtask[0]
    if source == "klob":
        return locate(official_files()[f"klob-{letter}"])
    path = MINI[letter] if source == "klob-mini" else Path(source).expanduser()
    if path.is_dir():
        path /= f"KLoB-{letter}.jsonl"
    if not path.is_file():
        raise UserError(
            f"{path}: neither 'klob', 'klob-mini', nor a folder with KLoB-{letter}.jsonl"
        )
    return path
