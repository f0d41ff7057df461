"""The records that the studies of this room edit, and others of a record's relation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from helpers.paths import digest_of
from helpers.peak.publish import peak_run
from helpers.peak.records import PeakRecord, load_peak
from helpers.peak.run import PeakRun
from helpers.records import comparable

CHUNK = 10  # records edited between two writes to the store


def studied_run(params: Mapping[str, Any]) -> PeakRun:
    """Model, records and store that the parameters name; an interruption costs ``CHUNK`` records."""
    return replace(peak_run(params), chunk=CHUNK)


def all_records(params: Mapping[str, Any]) -> Sequence[PeakRecord]:
    """Every record of the data set, whether it is edited or not."""
    return load_peak(params["dataset"], strict_lists=params["strict_lists"]).records


def others_of_relation(
    record: PeakRecord, pool: Sequence[PeakRecord], seed: int
) -> list[PeakRecord]:
    """The records of the same relation about other subjects, in an order drawn by ``seed``.

    The order is that of digests, so that a larger pool leaves the order of those that there were.
    """

    def digest(other: PeakRecord) -> str:
        return digest_of(f"{seed} {record.case_id} {other.case_id}".encode())

    subject_key = comparable(record.subject)
    others = [
        other
        for other in pool
        if other.relation == record.relation and comparable(other.subject) != subject_key
    ]
    return sorted(others, key=digest)
