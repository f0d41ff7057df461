"""Names in texts and as answers: is an entity named, and how probable is it that it will be?

Case, accents and spelling variants do not matter in texts. As answers, each name's tokens are one way
to continue a prompt. Two names exclude each other unless the tokens of one begin those of the other, in
which case the shorter one covers both.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from helpers.models.language_model import LanguageModel
from helpers.models.tokens import answer_ids

Aliases = Mapping[str, tuple[str, ...]]  # case-folded entity → other names

# Scripts whose words are written without blanks, or with particles attached, as Unicode names their letters.
_UNSPACED = {"CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO"}
_UNSPACED |= {"THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN"}
_ACCENTED = ("LATIN", "GREEK", "CYRILLIC")  # marks on their letters are accents, no letters


def mentions(text: str, names: Iterable[str]) -> bool:
    """Whether one of the names occurs in the text as whole words.

    Case, accents and runs of white space are ignored: "rené" is found in "Rene  Descartes", "USA" is
    not found in "usable". In scripts that write words without blanks, a name is found anywhere: "東京" in
    "東京都".
    """
    folded = fold(text)
    return any(True for name in names for _ in starts(folded, fold(name)))


def starts(text: str, name: str) -> Iterator[int]:
    """Places of a folded text at which the folded name is a whole word; none for an empty name."""
    for found in re.finditer(f"(?={re.escape(name)})", text) if name else ():
        if _ends(text, found.start()) and _ends(text, found.start() + len(name)):
            yield found.start()


def begins(text: str, names: Iterable[str]) -> bool:
    """Whether the text begins with one of the names, as ``mentions`` compares them."""
    folded = fold(text)
    return any(next(starts(folded, fold(name)), None) == 0 for name in names)


def names_of(entity: str, aliases: Aliases) -> tuple[str, ...]:
    """The entity's own name and its aliases."""
    return (entity, *aliases.get(entity.casefold(), ()))


def fold(text: str) -> str:
    """Lower case, white space collapsed, without accents on Latin, Greek and Cyrillic letters.

    Marks of other scripts make other letters: か is not が.
    """
    kept: list[str] = []
    accented = True
    for character in unicodedata.normalize("NFKD", text.casefold()):
        if not unicodedata.combining(character):
            accented = character.isascii() or _script(character) in _ACCENTED
        elif accented:
            continue
        kept.append(character)
    return " ".join(unicodedata.normalize("NFC", "".join(kept)).split())


def exclusive(language_model: LanguageModel, names: Sequence[str]) -> list[int]:
    """Places of the names that no other name begins, token by token; of equal names the first.

    The names are given without a leading blank.

    Raises:
        TokenError: a blank name.
    """
    ids = [answer_ids(language_model, name) for name in names]
    return [
        place
        for place, own in enumerate(ids)
        if own not in ids[:place] and not any(own[: len(o)] == o != own for o in ids)
    ]


def log_naming(sums: ArrayLike) -> float:
    """Log-probability of naming, from those of names that exclude each other (natural logarithm).

    At most 0, although rounding may carry a sum of probabilities above 1; NaN where one is NaN.
    """
    given = np.asarray(sums, dtype=float)
    return float("nan") if np.isnan(given).any() else float(min(np.logaddexp.reduce(given), 0.0))


def _ends(text: str, place: int) -> bool:
    """Whether a word may end, or begin, before this place of a folded text."""
    if not 0 < place < len(text):
        return True
    if unicodedata.category(text[place])[0] == "M":  # part of the letter before it
        return False
    return not all(
        (c == "_" or unicodedata.category(c)[0] in "LMN") and _script(c) not in _UNSPACED
        for c in text[place - 1 : place + 1]
    )


def _script(character: str) -> str:
    return unicodedata.name(character, "").split(" ")[0].split("-")[0]
