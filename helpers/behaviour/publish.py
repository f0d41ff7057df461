"""The published run of every scorer: notebook 04's methods ``scorers``, a table each and one of names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from helpers.behaviour.agreement import UNEDITED, named_table
from helpers.behaviour.scorers import SAMPLED, Scorers
from helpers.peak.publish import editors_of, peak_run, publication_of
from helpers.results.benchmark import part_of_cases
from helpers.results.publish import Publication


def publication(params: Mapping[str, Any]) -> Publication:
    """Methods under every scorer, and the known answers that each state's responses name."""
    run = peak_run(params)
    scorers = Scorers(run, params["samples"], replace(SAMPLED, seed=params["seed"]))
    case_ids = [record.case_id for record in run.data.records]
    second_draw = scorers.second_draw()
    parts = [
        part_of_cases(named_table(UNEDITED), {}, scorers.named, case_ids),
        part_of_cases(named_table(UNEDITED, second_draw=True), {}, second_draw.named, case_ids),
    ]
    for method, editor in editors_of(run, params["scorers"], params).items():
        settings = editor.settings()
        read_scores = partial(scorers.scores, editor)
        parts.append(part_of_cases(method, settings, read_scores, case_ids))
        read_named = partial(scorers.named, editor)
        parts.append(part_of_cases(named_table(method), settings, read_named, case_ids))
    return publication_of(run, params, parts, params["scorers"], scorers.settings)
