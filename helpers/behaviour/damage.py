"""Notebook 08's published runs of damage elsewhere: doses at locality prompts, and the exam, as parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from helpers.behaviour.doses_run import dose_parts
from helpers.behaviour.exam_run import exam_parts
from helpers.behaviour.studies import CHUNK, editors_of_variants, variant_parts
from helpers.editing.editors import Variant
from helpers.peak.publish import peak_run, publication_of
from helpers.results.publish import Publication


def publication(params: Mapping[str, Any]) -> Publication:
    """Notebook 08's doses, scored and at locality prompts, and its exam of general ability."""
    run = replace(peak_run(params), chunk=CHUNK)
    doses = [Variant.parse(name) for name in params["doses"]]
    variants = [variant for dose in doses for variant in (Variant(dose.method), dose)]
    variants = list(dict.fromkeys(variants))
    editors = editors_of_variants(run, variants, params)
    editors_of_doses = {str(dose): editors[str(dose)] for dose in doses if str(dose) in editors}
    parts = [
        *variant_parts(run, variants, editors),
        *dose_parts(run, editors_of_doses),
        *exam_parts(run, params),
    ]
    return publication_of(run, params, parts, [])
