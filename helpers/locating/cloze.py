"""Sentences that end in an answer slot, as text."""

from __future__ import annotations

from helpers.records import RecordError

SLOT = " _"


def without_slot(cloze: str) -> str:
    """The prompt a causal model reads: the sentence without its trailing slot.

    Raises:
        RecordError: the sentence does not end in the slot.
    """
    if not cloze.endswith(SLOT) or not cloze.removesuffix(SLOT).strip():
        raise RecordError(
            f"sentence {cloze!r} has no answer slot: it must be text that ends in {SLOT!r}"
        )
    return cloze.removesuffix(SLOT).rstrip()
