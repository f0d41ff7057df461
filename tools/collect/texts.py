"""Lists of names out of the factbook's running text."""

import html
import re

_TAG = re.compile(r"<[^>]*>")
_PARENTHESES = re.compile(r"\([^()]*\)|\[[^\[\]]*\]")
_NUMBER = re.compile(r"[<>~]?\s*\d[\d.,\-–]*\s*(%|percent|km|sq km|m\b|million|billion)?")
_STOP = re.compile(
    r"\b(note|other|others|none|unspecified|unaffiliated|includes?|including|see|etc|than|but|also"
    r"|various|mixed|minorit\w+|which|is|are|with|from|mostly|mainly|some|small|negligible|NA|about"
    r"|less|more|majority|major|similar|largest|unknown|no|not|of the|use|data|rest|spoken|recent"
    r"|percentages|consist|predominantly|million|per|total|small|limited|possible|potential|large"
    r"|production|services|goods|related|light|basic|products?|processing|manufacturing|center)\b",
    re.IGNORECASE,
)
_ROMAN = re.compile(r"[IVX]+")  # after a monarch's name


def plain(text: str) -> str:
    """Text without markup, entities and parentheses; only what precedes the first note or section.

    >>> plain("gold, silver (traces);<br><strong>note:</strong> more")
    'gold, silver;'
    """
    text = re.split(r"<br\s*/?>|\bnote\b|</p>|--", text, maxsplit=1)[0]
    text = html.unescape(_TAG.sub(" ", text)).replace("\xa0", " ")
    for _ in range(3):  # nested parentheses
        text = _PARENTHESES.sub(" ", text)
    return re.sub(r"\s+([,;])", r"\1", re.sub(r"\s+", " ", text)).strip()


def names(text: str, *, words: int = 3, stop: bool = True) -> list[str]:
    """Names in a list separated by commas or semicolons, without shares and dates.

    Args:
        text: the factbook's text.
        words: a longer piece is prose, not a name, and is left out.
        stop: leave out pieces with words that only prose has.
    """
    found = []
    for piece in re.split(r"[,;]", plain(text)):
        name = _NUMBER.sub(" ", piece)
        name = re.sub(r"^(and|or|the)\s+", "", re.sub(r"\s+", " ", name).strip(" .*-–:"))
        if 1 <= len(name.split()) <= words and len(name) > 2 and not (stop and _STOP.search(name)):
            found.append(name)
    return found


def sections(text: str) -> bool:
    """Whether a text describes several territories one by one."""
    return bool(re.search(r"<(strong|em)>[^<]*:\s*</(strong|em)>|<em>[^<]*:</em>", text))


def capitals_to_title(name: str) -> str:
    """``Emmanuel MACRON`` to ``Emmanuel Macron``.

    >>> capitals_to_title("Robert MCNAMARA")
    'Robert McNamara'
    """
    words = []
    for place, word in enumerate(name.split()):
        number = place > 0 and _ROMAN.fullmatch(word)
        parts = word.split("-")
        words.append(word if number else "-".join(_title(part) for part in parts))
    return re.sub(r"\bMc([a-z])", lambda match: "Mc" + match[1].upper(), " ".join(words))


def _title(word: str) -> str:
    return word.capitalize() if word.isupper() else word
