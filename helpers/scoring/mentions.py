"""Does a response contain an entity? Case, accents and spelling variants do not matter."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping

Aliases = Mapping[str, tuple[str, ...]]  # case-folded entity → other names


def mentions(text: str, names: Iterable[str]) -> bool:
    """Whether one of the names occurs in the text as whole words.

    Case, accents and runs of white space are ignored: "rené" is found in "Rene  Descartes", "USA" is
    not found in "usable".
    """
    folded = fold(text)
    return any(
        re.search(rf"(?<!\w){re.escape(fold(name))}(?!\w)", folded) for name in names if fold(name)
    )


def begins(text: str, names: Iterable[str]) -> bool:
    """Whether the text begins with one of the names, as ``mentions`` compares them."""
    folded = fold(text)
    return any(re.match(rf"{re.escape(fold(name))}(?!\w)", folded) for name in names if fold(name))


def names_of(entity: str, aliases: Aliases) -> tuple[str, ...]:
    """The entity's own name and its aliases."""
    return (entity, *aliases.get(entity.casefold(), ()))


def fold(text: str) -> str:
    """Lower case without accents, white space collapsed."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    plain = "".join(mark for mark in decomposed if not unicodedata.combining(mark))
    return " ".join(plain.split())
