"""The published run of every scorer: notebook 04's methods ``scorers``, a table each and one of names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from helpers.behaviour.scorers import SAMPLED, UNEDITED, Scorers, named_table
from helpers.peak.publish import editors_of, part_of_records, peak_run, publication_of
from helpers.results.publish import Publication


def publication(params: Mapping[str, Any]) -> Publication:
    """Methods under every scorer, and the known answers that each state's responses name."""
    run = peak_run(params)
    scorers = Scorers(run, params["samples"], replace(SAMPLED, seed=params["seed"]))
    parts = [
        part_of_records(named_table(UNEDITED), run, scorers.named),
        part_of_records(named_table(UNEDITED, again=True), run, scorers.again().named),
    ]
    for method, editor in editors_of(run, params["scorers"], params).items():
        parts.append(part_of_records(method, run, scorers.scores, editor))
        parts.append(part_of_records(named_table(method), run, scorers.named, editor))
    return publication_of(run, params, parts, params["scorers"], scorers.settings)
