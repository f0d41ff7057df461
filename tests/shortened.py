"""PEAK records with few answers, for tests that edit or score them."""

from __future__ import annotations

from dataclasses import replace

from helpers.peak.records import PeakRecord


def shortened(record: PeakRecord, *, locality: int | None = None) -> PeakRecord:
    """A record with two answers a list and one paraphrase, and some of its locality prompts (None: all)."""
    return replace(
        record,
        correct=record.correct[:2],
        hard_false=record.hard_false[:2],
        random_false=record.random_false[:2],
        paraphrases=record.paraphrases[:1],
        locality=record.locality[:locality],
    )
