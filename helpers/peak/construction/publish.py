"""Constructions of notebook 02, written to the archive, and what the official files contradict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from helpers import UserError, models
from helpers.fetch import NotHereError, locate
from helpers.paths import run_name
from helpers.peak.construction.run import about_of, construct
from helpers.peak.construction.tables import validation_report
from helpers.peak.records import OFFICIAL, load_peak
from helpers.results.archive import About, Archive

OFFICIAL_RUN = "official"


def publish(params: Mapping[str, Any], into: Archive, *, finished: bool = False) -> Path:
    """A construction's funnel and filter, unless they are published; then ``publish_official``.

    Args:
        params: of notebook 02.
        into: the archive *construction*.
        finished: refused: a construction is made as a whole.

    Raises:
        ArchiveError: the published run was made otherwise.
    """
    if finished:
        raise UserError("--finished is not for notebook 02: a construction is made as a whole")
    model = models.load(params["model"], dtype=params["dtype"], device=params["device"])
    name, about = run_name(params["source"], model.name), about_of(params, model)
    into.check(name, about)
    publish_official(Archive(into.root))
    if not into.known(name):
        made = construct(params, model)
        into.put(name, made.tables, made.about)
    return into.folder(name)


def publish_official(into: Archive) -> None:
    """How many contradictions of each kind the official files hold, of those that are at hand."""
    rows = []
    for name, resource in OFFICIAL.items():
        try:
            locate(resource, download=False)
        except NotHereError:
            continue
        contradictions = validation_report(load_peak(name, strict_lists=False).records)
        rows += [
            (name, *counted) for counted in Counter(w.kind for w in contradictions).most_common()
        ]
    table = pd.DataFrame(rows, columns=["set", "kind", "count"])
    source = {name: resource.checksum for name, resource in OFFICIAL.items()}
    if rows:
        into.put(OFFICIAL_RUN, {"contradictions": table}, About(source), by=["set"])
