"""Does a response contain an entity? Case, accents and spelling variants do not matter."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping

Aliases = Mapping[str, tuple[str, ...]]  # case-folded entity → other names

# Scripts whose words stand without blanks, or with particles attached, as Unicode names their letters.
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
    """Places of a folded text at which the folded name stands as a whole word; none for an empty name."""
    for found in re.finditer(f"(?={re.escape(name)})", text) if name else ():
        if _ends(text, found.start()) and _ends(text, found.start() + len(name)):
            yield found.start()


def begins(text: str, names: Iterable[str]) -> bool:
    """Whether the text begins with one of the names, as ``mentions`` compares them."""
    folded = fold(text)
    return any(
        folded.startswith(name) and _ends(folded, len(name)) for name in map(fold, names) if name
    )


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


def _ends(text: str, place: int) -> bool:
    """Whether a word may end, or begin, before this place of a folded text."""
    if not 0 < place < len(text):
        return True
    before, after = text[place - 1], text[place]
    if unicodedata.category(after)[0] == "M":  # part of the letter before it
        return False
    return not (_in_word(before) and _in_word(after))


def _in_word(character: str) -> bool:
    of_a_word = character == "_" or unicodedata.category(character)[0] in "LMN"
    return of_a_word and _script(character) not in _UNSPACED


def _script(character: str) -> str:
    return unicodedata.name(character, "").split(" ")[0].split("-")[0]
