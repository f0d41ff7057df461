"""The published run of every scorer: notebook 04's methods ``scorers``, a table each and one of names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from helpers.behaviour.scorers import SAMPLED, UNEDITED, Scorers, named_table
from helpers.peak.publish import editors_of, peak_run, publication_of
from helpers.results.benchmark import part_of_cases
from helpers.results.publish import Publication


def publication(params: Mapping[str, Any]) -> Publication:
    """Methods under every scorer, and the known answers that each state's responses name."""
    run = peak_run(params)
    scorers = Scorers(run, params["samples"], replace(SAMPLED, seed=params["seed"]))
    cases = [record.case_id for record in run.data.records]
    again = scorers.again()
    parts = [
        part_of_cases(named_table(UNEDITED), {}, scorers.named, cases),
        part_of_cases(named_table(UNEDITED, again=True), {}, again.named, cases),
    ]
    for method, editor in editors_of(run, params["scorers"], params).items():
        settings = editor.settings()
        scores = partial(scorers.scores, editor)
        parts.append(part_of_cases(method, settings, scores, cases))
        named = partial(scorers.named, editor)
        parts.append(part_of_cases(named_table(method), settings, named, cases))
    return publication_of(run, params, parts, params["scorers"], scorers.settings)
