"""Notebook 04's published run: variants of APP and sequences, as lists of parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from helpers.editing.editor import Editor
from helpers.editing.editors import Variant
from helpers.peak.ablations import studies
from helpers.peak.publish import editors_of, peak_run, publication_of, sequence_parts
from helpers.peak.run import PeakRun
from helpers.results.benchmark import evaluation_part
from helpers.results.publish import Part, Publication

CHUNK = 10  # records of a study edited between two writes to the results store


def publication(params: Mapping[str, Any]) -> Publication:
    """The studies on the first ``records``; sequences take as many as their ``checkpoints`` need."""
    most = max([params["records"], *params["checkpoints"]])
    run = peak_run({**params, "records": most})
    first_records = run.data.records[: params["records"]]
    first = replace(run, data=replace(run.data, records=first_records), chunk=CHUNK)
    variants = studies(params)
    editors = editors_of_variants(first, variants, params)
    parts = [*variant_parts(first, variants, editors), *sequence_parts(run, params)]
    named = (*params["editors"], *params["fairer"], *params["others"])
    return publication_of(run, params, parts, [f"{editor}+app" for editor in named])


def editors_of_variants(
    run: PeakRun, variants: list[Variant], params: Mapping[str, Any]
) -> dict[str, Editor]:
    """The variants' editors by name, and those of their unchanged methods."""
    whole = [Variant(variant.method) for variant in variants]
    return editors_of(run, [*whole, *variants], params)


def variant_parts(
    run: PeakRun, variants: list[Variant], editors: Mapping[str, Editor]
) -> Iterator[Part]:
    """Scores of independent edits by each variant, but those that change nothing of their method.

    Half of nothing is no variant: MEND's APP has L1 alone.
    """
    for variant in variants:
        if str(variant) in editors:
            editor = editors[str(variant)]
            whole = editors[variant.method]
            if not variant.field or editor.settings() != whole.settings():
                yield evaluation_part(str(variant), run.evaluation(editor))
