"""Public holidays by country with the year they were first kept (package ``holidays``)."""

import re
import warnings
from collections.abc import Iterator
from datetime import date

from helpers.triples.store import Fact
from tools.collect.countries import Countries, source

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


def public_holidays(countries: Countries) -> Iterator[Fact]:
    """Country, P832, holiday; dated when it was introduced after the calendar's first year."""
    package = source("holidays")
    for iso, country in countries.by_iso.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # years outside a country's calendar
            kept = _first_kept(package, iso)
        calendar_start = min((day.year for day in kept.values()), default=0)
        for name, first in kept.items():
            start = first.isoformat() if first.year > max(calendar_start, FIRST_YEAR) else None
            yield Fact(country.name, ("country",), "P832", name, ("public holiday",), start,
                       source="holidays")  # fmt: skip


def _first_kept(package: object, iso: str) -> dict[str, date]:
    """First date of each holiday of a country, by its English name."""
    years = range(FIRST_YEAR, LAST_YEAR + 1)
    try:
        calendar = package.country_holidays(iso)  # type: ignore[attr-defined]
    except NotImplementedError:  # how the package says that it lacks a country
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
