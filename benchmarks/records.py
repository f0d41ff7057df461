"""Records to measure with, also where nothing can be downloaded."""

from __future__ import annotations

import typer

from helpers import UserError
from helpers.peak.records import load_peak
from helpers.peak.schema import PeakRecord


def records_at_hand(dataset: str) -> list[PeakRecord]:
    """The data set's records; with a word, packaged ones where it can be neither found nor fetched."""
    try:
        return list(load_peak(dataset).records)
    except UserError as error:
        typer.echo(f"peak-mini-cf takes the place of {dataset}: {error}", err=True)
        return list(load_peak("peak-mini-cf").records)
