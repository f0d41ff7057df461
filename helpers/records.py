"""Files of records: how they are read, and what is wrong with some of them."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

import yaml
from pydantic import ValidationError

from helpers import UserError

MOST_LISTED = 30  # choices that a message names one by one
SLOT = " _"  # the end of a sentence whose answer is asked for
Item = TypeVar("Item")
Record = TypeVar("Record")
# Signs that texts have for the apostrophe and the hyphen of a keyboard, and signs that show nothing:
# soft hyphen, zero-width blanks and joiners, marks of direction. The letters \u02bb (Hawaiian), \u02be and
# \u02bf (Semitic) are none of them.
_APOSTROPHES = "\u2018\u2019\u201b\u02bc\u2032`\u00b4"
_HYPHENS = "\u2010\u2011\u2012\u2013\u2212"
_INVISIBLE = re.compile(
    "[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff]"
)
_SIGNS = str.maketrans(dict.fromkeys(_APOSTROPHES, "'") | dict.fromkeys(_HYPHENS, "-"))


class Numbered(Protocol):
    """An item of a benchmark, by its number."""

    @property
    def case_id(self) -> int:
        """The number, which no other item has."""


NumberedItem = TypeVar("NumberedItem", bound=Numbered)


_SafeLoader: Any = getattr(
    yaml, "CSafeLoader", yaml.SafeLoader
)  # the quick one, where there is one


class _Loader(_SafeLoader):
    """YAML without numbers that nobody means: 12:30 as 750, the time of day in base 60, or 010 as 8."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a name that is given twice, of which YAML takes the last."""
        keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        lines: dict[tuple[str, str], int] = {}
        for key in keys:
            line = key.start_mark.line + 1
            first = lines.setdefault((key.tag, key.value), line)
            if first != line:
                raise UserError(f"{key.value!r} is given in lines {first} and {line}: remove one")
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":int", ":float"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_INTEGER = r"[-+]?(?:0|[1-9][0-9_]*)$"
_REAL = r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$"
_INFINITE_OR_NAN = r"[-+]?\.(?:inf|Inf|INF)$|\.(?:nan|NaN|NAN)$"
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(_INTEGER), list("-+0123456789"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(f"{_REAL}|{_INFINITE_OR_NAN}"), list("-+0123456789.")
)


def read_text(path: Path, *, errors: str = "strict") -> str:
    """The text of a UTF-8 file that a user gives, with or without a byte-order mark.

    ``errors`` is what becomes of other bytes, as ``bytes.decode`` names it; "strict" refuses them.
    """
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig", errors)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path}, line {line}: byte {content[error.start]:#04x} is no UTF-8; save the file as UTF-8"
        ) from error
    zero_byte = text.find("\0")
    if zero_byte >= 0:
        line = text.count("\n", 0, zero_byte) + 1
        raise UserError(f"{path}, line {line}: a zero byte, as in UTF-16; save the file as UTF-8")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_yaml(path: Path) -> Any:
    """The value of a YAML file that a user gives."""
    text = read_text(path)
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a safe loader
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error


def read_json(text: str | bytes, source: str) -> Any:
    """The value of a JSON text; ``source`` names the file, and the line where it has many."""
    try:
        return json.loads(text)
    except ValueError as problem:
        raise UserError(
            f"{source}: not JSON ({problem}); correct it or fetch it again"
        ) from problem


def read_all(
    items: Iterable[tuple[str, Item]], read: Callable[[Item], Record], *, shown: int = 5
) -> list[Record]:
    """What ``read``, such as a pydantic model's ``model_validate``, makes of each item.

    Items come with their sources, such as "facts.json, case_id 3". A UserError has the source, fields and
    problem of the first ``shown`` that cannot be used, in one line.
    """
    records = []
    wrong = []
    for source, item in items:
        try:
            records.append(read(item))
        except ValueError as error:
            wrong.append(f"{source}: {error_in_words(error)}")
    if wrong:
        more = f"; and {len(wrong) - shown} more" if len(wrong) > shown else ""
        raise UserError(
            f"{'; '.join(wrong[:shown])}{more}: nothing was edited yet; correct the file"
        )
    return records


def error_in_words(error: ValueError, *, known: Iterable[str] = (), noun: str = "parameter") -> str:
    """An error in one line; one of pydantic has each field, its problem and its value.

    Where names are ``known``, one that is none of them is answered with these; ``noun`` is what they are.
    """
    if not isinstance(error, ValidationError):
        return str(error)
    faults = []
    for fault in error.errors():
        name = ".".join(map(str, fault["loc"]))
        if known and fault["type"] == "extra_forbidden":
            faults.append(f"there is no {noun} {name!r}; there are {', '.join(known)}")
        else:
            problem = fault["msg"].removeprefix("Value error, ").lower()
            value = "" if fault["type"] == "missing" else f", not {fault['input']!r:.60}"
            faults.append(f"{name}: {problem}{value}")
    return "; ".join(faults)


@lru_cache(maxsize=100_000)  # constructions compare the same few names millions of times
def comparable(name: str) -> str:
    """A name as people compare it with others: two names of any list are equal where this is equal.

    Without case, Unicode form, outer and repeated blanks; apostrophes, hyphens and blanks are those of a
    keyboard, and what shows nothing is gone (``plain_signs``). Accents make another name.

    >>> comparable("Côte d\u2019Ivoire ") == comparable("CÔTE D'IVOIRE")
    True
    """
    folded = unicodedata.normalize("NFKC", plain_signs(name).casefold())
    return " ".join(folded.split())


def plain_signs(text: str) -> str:
    """A text in NFKC with a keyboard's apostrophes, hyphens and blanks, without invisible signs."""
    # The acute accent by itself would become a blank with an accent.
    visible = _INVISIBLE.sub("", text).translate(_SIGNS)
    return unicodedata.normalize("NFKC", visible).translate(_SIGNS)


def did_you_mean(word: object, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """The known word that is nearest to a misspelt one, to end a message; empty where none is near.

    ``cutoff`` is how near: difflib's ratio, 1 for the same letters in the same order, whatever their case.
    """
    known_by_folded = {known_word.casefold(): known_word for known_word in known}
    folded = str(word).casefold()
    nearest = get_close_matches(folded, list(known_by_folded), n=1, cutoff=cutoff)
    return meant_in_words(known_by_folded[nearest[0]]) if nearest else ""


def meant_in_words(word: str) -> str:
    """The word that was probably meant, to end a message."""
    return f" (did you mean {word!r}?)"


def check_choice(whose: str, noun: str, choice: str, offered: Sequence[str]) -> None:
    """Refuse a choice that is none of those offered, naming them, or the first and the last of many."""
    if choice not in offered:
        listed = [*offered[:5], "…", offered[-1]] if len(offered) > MOST_LISTED else offered
        hint = did_you_mean(choice, offered)
        raise UserError(f"{whose}: no {noun} {choice!r}{hint}; there are {', '.join(listed)}")


def by_case_id(items: Iterable[NumberedItem], case_id: int) -> NumberedItem:
    """The record or edit with this number, or a ``UserError`` that names those there are."""
    numbered = {item.case_id: item for item in items}
    if case_id not in numbered:
        first = ", ".join(map(str, sorted(numbered)[:5]))
        more = f", … {max(numbered)}" if len(numbered) > 5 else ""
        raise UserError(f"no case_id {case_id}; there are {first}{more}")
    return numbered[case_id]


def without_slot(cloze: str) -> str:
    """The prompt a causal model reads: the sentence without its trailing slot."""
    if not cloze.endswith(SLOT) or not cloze.removesuffix(SLOT).strip():
        raise UserError(f"sentence {cloze!r} has no answer slot: it must end in {SLOT!r}")
    return cloze.removesuffix(SLOT).rstrip()
