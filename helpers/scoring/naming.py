"""Names in texts: is an entity named, and how probable is it that it will be?

Names are met in texts in three ways, and each way is one function: ``mentions`` is the matcher of
generated texts and of prompts, ``helpers.records.compared`` the equality of two names of lists, and
``starts`` the places that ``mentions`` finds.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from helpers.records import comparable, plain_signs

Aliases = Mapping[str, tuple[str, ...]]  # ``compared`` entity → other names

# Of Thai, Khmer, Chinese, …, which put no blanks between words.
_UNSPACED = re.compile("[\u0e00-\u109f\u1780-\u17ff\u3040-\u9fff\uac00-\ud7af]")
_ACCENTS = re.compile("[\u0300-\u036f]")
_POINT_IN_NUMBER = re.compile(r"(?<=\d)[.,](?=\d)")  # 3 is not in 3.5, nor 1 in 1,000
# What hyphens join to a name, before it and after it.
_JOINED_BEFORE = re.compile(r"[\w'-]*\w-$")
_JOINED_AFTER = re.compile(r"-\w[\w'-]*")


def mentions(text: str, names: Iterable[str]) -> bool:
    """Whether one of the names occurs as whole words (``starts``)."""
    return any(True for name in names for _ in starts(text, name))


def starts(text: str, name: str) -> Iterator[int]:
    """Places of the ``unaccented`` text at which the name is a whole word; none for an empty name.

    Case, accents, white space and the kind of an apostrophe or hyphen do not matter.

    A hyphen may join a name to more. Where the rest is small letters, it is a word made with the name,
    which is named: "Paris-based", "French-speaking", "anti-French". Where a part of it has a capital or is
    a number, the whole is a longer name, and the name is not named: Guinea in "Guinea-Bissau", Port in
    "Port-au-Prince", New York in "New York-New Jersey", Paris in "Paris–Dakar". A text that writes the name
    itself small ("guinea-bissau") does not tell; there the whole is taken for a longer name.

    A hyphen next to a blank or a line break joins nothing ("Guinea - Bissau", "Guinea- and Mali-based"), nor
    does one between two numbers ("1914-1918"), a long dash or an apostrophe ("Paris's", "l'Afrique").
    """
    text, name = unaccented(text), unaccented(name)
    folded_text, folded_name = text.casefold(), name.casefold()
    start = folded_text.find(folded_name) if folded_name else -1
    while start >= 0:
        end = start + len(folded_name)
        if _is_whole(text, start, end) and not _in_longer_name(text, start, end, name):
            yield start
        start = folded_text.find(folded_name, start + 1)


@lru_cache(4096)  # the same texts and names are compared with each other many times
def unaccented(text: str) -> str:
    """Plain signs, white space collapsed, no accents; other scripts' marks make other letters.

    Case stays, but for letters such as ß that have two small ones: ``casefold`` keeps its length.
    """
    bare = _ACCENTS.sub("", unicodedata.normalize("NFKD", plain_signs(text)))
    joined = " ".join(unicodedata.normalize("NFC", bare).split())
    return "".join(letter if len(folded := letter.casefold()) == 1 else folded for letter in joined)


def fold(text: str) -> str:
    """``unaccented`` in lower case: names that texts do not distinguish are one."""
    return unaccented(text).casefold()


def names_of(entity: str, aliases: Aliases) -> tuple[str, ...]:
    """The entity's own name and its aliases."""
    return (entity, *aliases.get(comparable(entity), ()))


def log_naming(sums: ArrayLike) -> float:
    """Log-probability of naming, from those of names that exclude each other; rounded to at most 0."""
    with np.errstate(invalid="ignore"):  # NaN where one is
        return float(np.minimum(np.logaddexp.reduce(np.asarray(sums, dtype=float)), 0.0))


def _is_whole(text: str, start: int, end: int) -> bool:
    """Whether no word continues where the name begins or ends."""
    begins_inside = start > 0 and _in_word(text[start - 1]) and _in_word(text[start])
    in_number = _POINT_IN_NUMBER.match(text, start - 1) if start else None
    in_number = in_number or _POINT_IN_NUMBER.match(text, end)
    if begins_inside or in_number or end == len(text):
        return not (begins_inside or in_number)
    ends_inside = _in_word(text[end - 1]) and _in_word(text[end])
    return not ends_inside and not _is_mark(text[end])


def _in_word(sign: str) -> bool:
    is_part = sign.isalnum() or sign == "_" or _is_mark(sign)
    return is_part and not _UNSPACED.match(sign)


def _is_mark(sign: str) -> bool:
    """Whether it is part of the letter before it, such as the vowel signs of Devanagari."""
    return unicodedata.category(sign).startswith("M")


def _in_longer_name(text: str, start: int, end: int, name: str) -> bool:
    """Whether what hyphens join to a name makes a longer name of it."""
    before = _JOINED_BEFORE.search(text, 0, start) if _joins(text, start - 1) else None
    after = _JOINED_AFTER.match(text, end) if _joins(text, end) else None
    rest = "".join(found.group() for found in (before, after) if found)
    if not rest:
        return False
    written = text[start:end]
    written_small = written == written.lower() and name != name.lower()
    return written_small or any(sign.isalnum() and not sign.islower() for sign in rest)


def _joins(text: str, place: int) -> bool:
    """Whether a hyphen is there, between signs of words that are not both digits."""
    if not 0 < place < len(text) - 1 or text[place] != "-":
        return False
    left, right = text[place - 1], text[place + 1]
    return _in_word(left) and _in_word(right) and not (left.isdigit() and right.isdigit())
