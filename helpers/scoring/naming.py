"""Names in texts and as answers: is an entity named, and how probable is it that it will be?

As answers, each name's tokens are one way to continue a prompt. Two names exclude each other unless
the tokens of one begin those of the other, in which case the shorter one covers both.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from helpers.models import LanguageModel
from helpers.models.tokens import answer_ids

Aliases = Mapping[str, tuple[str, ...]]  # case-folded entity → other names

# Characters of words, but for Thai, Khmer, Chinese, … which put no blanks between them.
_WORD = r"[^\W\u0e00-\u109f\u1780-\u17ff\u3040-\u9fff\uac00-\ud7af]"
_ACCENTS = re.compile("[\u0300-\u036f]")


def mentions(text: str, names: Iterable[str]) -> bool:
    """Whether one of the names occurs as whole words, whatever its case, accents and white space."""
    folded = fold(text)
    return any(True for name in names for _ in starts(folded, fold(name)))


def starts(text: str, name: str) -> Iterator[int]:
    """Places of a folded text at which the folded name is a whole word; none for an empty name."""
    before = f"(?<!{_WORD})" if re.match(_WORD, name) else ""
    after = f"(?!{_WORD})" if re.match(_WORD, name[-1:]) else ""
    pattern = f"(?={before}{re.escape(name)}{after})"
    yield from (found.start() for found in re.finditer(pattern, text) if name)


def names_of(entity: str, aliases: Aliases) -> tuple[str, ...]:
    """The entity's own name and its aliases."""
    return (entity, *aliases.get(entity.casefold(), ()))


def fold(text: str) -> str:
    """Lower case, white space collapsed, without accents; other scripts' marks make other letters."""
    bare = _ACCENTS.sub("", unicodedata.normalize("NFKD", text.casefold()))
    return " ".join(unicodedata.normalize("NFC", bare).split())


def exclusive(model: LanguageModel, names: Sequence[str]) -> list[int]:
    """Places of the names that no other name begins, token by token; of equal names the first."""
    ids = [answer_ids(model, name) for name in names]
    return [
        place
        for place, own in enumerate(ids)
        if own not in ids[:place] and not any(own[: len(o)] == o != own for o in ids)
    ]


def log_naming(sums: ArrayLike) -> float:
    """Log-probability of naming, from those of names that exclude each other; rounded to at most 0."""
    with np.errstate(invalid="ignore"):  # NaN where one is
        return float(np.minimum(np.logaddexp.reduce(np.asarray(sums, dtype=float)), 0.0))
