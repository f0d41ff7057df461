"""KLoB: sentences with one fact in three wordings (c), facts and chains (r), no fact at all (u).

Every sentence ends in ``" _"``, the slot of its answer. Files have one JSON value per line; the
official ones have no licence and are downloaded, never shipped. ``klob-mini-*`` are packaged
reconstructions in the same schema (``helpers.klob.construction.sentences``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from helpers import UserError
from helpers.fetch import locate, official_files
from helpers.paths import PACKAGED
from helpers.records import Usable, read_json, without_slot

PROMPTS_PER_FACT = 3
OFFICIAL = {name: official_files()[name] for name in ("klob-c", "klob-r", "klob-u")}
MINI = {subtask: PACKAGED / "klob" / f"klob-mini-{subtask}.jsonl" for subtask in "cru"}


@dataclass(frozen=True)
class ConsistencyExample:
    """One fact of KLoB-c: three sentences, and (subject, relation, object).

    ``relation`` is written as published: a keyword and a Wikidata property, ``"native_(P103)"``.
    """

    prompts: tuple[str, ...]
    knowledge: tuple[str, str, str]

    def to_json(self) -> dict[str, object]:
        """The example in the published schema."""
        return {"prompts": list(self.prompts), "knowledge": list(self.knowledge)}


@dataclass(frozen=True)
class RelevanceExample:
    """One fact and a two-hop chain that starts with it (KLoB-r).

    ``fact`` is (subject, relation, object), ``chain`` (subject, relation, object, relation, object).
    """

    fact: tuple[str, str, str]
    chain: tuple[str, str, str, str, str]
    fact_prompts: tuple[str, ...]
    chain_prompt: str

    @property
    def prompts(self) -> tuple[str, ...]:
        """The fact's sentences, then the chain's."""
        return (*self.fact_prompts, self.chain_prompt)

    def to_json(self) -> dict[str, object]:
        """The example in the published schema (its spelling of the keys)."""
        return {
            "single_knowledge": list(self.fact),
            "knowledge_chain": list(self.chain),
            "single_knowlege_prompts": list(self.fact_prompts),
            "knowlege_chain_prompt": self.chain_prompt,
        }


Example = ConsistencyExample | RelevanceExample | str
Subtask = Literal["consistency", "relevance", "unbiasedness"]


def read_examples(subtask: Subtask, source: str | Path = "klob-mini") -> Usable[Any]:
    """A subtask's examples by their place in the file, and what is wrong with the others.

    Args:
        subtask: which file.
        source: ``"klob"`` (official), ``"klob-mini"`` (packaged), a folder with files ``KLoB-c.jsonl``,
            ``KLoB-r.jsonl`` and ``KLoB-u.jsonl`` in the same schema, or one such file.

    Raises:
        UserError: no such file, not UTF-8, or empty.
        UserError: the official file is neither here nor downloadable.
    """
    path = examples_file(subtask, source)
    try:
        # Not splitlines: JSON may hold other line separators than the line's end.
        text = path.read_text(encoding="utf-8").rstrip("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text ({error}); save it as UTF-8") from error
    if not text:
        raise UserError(f"{path}: no examples; the file is empty")
    parse = _PARSERS[subtask]

    def read(place: int, line: str) -> Example:
        where = line_of(path, place)
        return parse(read_json(line, where), where)

    return Usable(dict(enumerate(text.split("\n")))).through(read)


def load_consistency(source: str | Path = "klob-mini") -> tuple[ConsistencyExample, ...]:
    """KLoB-c examples.

    Raises:
        UserError: not JSON, a missing key, a sentence without its slot; see ``read_examples``.
    """
    return tuple(read_examples("consistency", source).checked().records.values())


def load_relevance(source: str | Path = "klob-mini") -> tuple[RelevanceExample, ...]:
    """KLoB-r examples; errors as for ``load_consistency``."""
    return tuple(read_examples("relevance", source).checked().records.values())


def load_unbiasedness(source: str | Path = "klob-mini") -> tuple[str, ...]:
    """KLoB-u sentences; errors as for ``load_consistency``."""
    return tuple(read_examples("unbiasedness", source).checked().records.values())


def save_examples(
    examples: Iterable[ConsistencyExample | RelevanceExample | str], path: Path
) -> None:
    """Write examples in the published schema, one JSON value per line."""
    values = [example if isinstance(example, str) else example.to_json() for example in examples]
    lines = [json.dumps(value, ensure_ascii=False) + "\n" for value in values]
    path.write_text("".join(lines), encoding="utf-8")


def examples_file(subtask: Subtask, source: str | Path) -> Path:
    """The file of a subtask."""
    letter = subtask[0]
    if source == "klob":
        return locate(OFFICIAL[f"klob-{letter}"])
    path = MINI[letter] if source == "klob-mini" else Path(source).expanduser()
    if path.is_dir():
        path /= f"KLoB-{letter}.jsonl"
    if not path.is_file():
        raise UserError(
            f"{path}: neither 'klob', 'klob-mini', nor a folder with KLoB-c.jsonl, KLoB-r.jsonl and"
            " KLoB-u.jsonl"
        )
    return path


def line_of(path: Path, place: int) -> str:
    """An example's place in its file, for messages."""
    return f"{path}, line {place + 1}"


def _consistency(value: Any, where: str) -> ConsistencyExample:
    prompts, knowledge = _keys(value, ("prompts", "knowledge"), where)
    return ConsistencyExample(
        _clozes(prompts, PROMPTS_PER_FACT, where), _texts(knowledge, 3, where, "knowledge")
    )


def _relevance(value: Any, where: str) -> RelevanceExample:
    keys = (
        "single_knowledge",
        "knowledge_chain",
        "single_knowlege_prompts",
        "knowlege_chain_prompt",
    )
    fact, chain, prompts, chain_prompt = _keys(value, keys, where)
    return RelevanceExample(
        _texts(fact, 3, where, keys[0]),
        _texts(chain, 5, where, keys[1]),
        _clozes(prompts, PROMPTS_PER_FACT, where),
        _cloze(chain_prompt, where),
    )


def _keys(value: Any, keys: Sequence[str], where: str) -> list[Any]:
    missing = [key for key in keys if not isinstance(value, dict) or key not in value]
    if missing:
        raise UserError(f"{where}: no {', '.join(missing)}; is this file of another subtask?")
    return [value[key] for key in keys]


def _texts(value: Any, count: int, where: str, key: str) -> Any:
    """A tuple of ``count`` non-empty texts."""
    texts = isinstance(value, list) and all(isinstance(t, str) and t.strip() for t in value)
    if not texts or len(value) != count:
        raise UserError(f"{where}: {key} must be {count} non-empty texts, not {value!r}")
    return tuple(value)


def _clozes(value: Any, count: int, where: str) -> tuple[str, ...]:
    return tuple(_cloze(text, where) for text in _texts(value, count, where, "prompts"))


def _cloze(value: Any, where: str) -> str:
    """A sentence with its slot."""
    if not isinstance(value, str):
        raise UserError(f"{where}: a sentence must be text, not {value!r}")
    try:
        without_slot(value)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    return value


_PARSERS: dict[Subtask, Callable[[Any, str], Example]] = {
    "consistency": _consistency,
    "relevance": _relevance,
    "unbiasedness": _cloze,
}
