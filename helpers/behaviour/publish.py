"""The published run of every scorer: notebook 04's methods ``scorers``, a table each and one of names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from helpers.behaviour.scorers import SAMPLED, UNEDITED, Scorers, named_table
from helpers.peak.publish import editors_of, peak_run, publication_of
from helpers.peak.run import PeakRun
from helpers.results.evaluation import small
from helpers.results.publish import Part, Publication


def publication(params: Mapping[str, Any]) -> Publication:
    """Methods under every scorer, and the known answers that each state's responses name."""
    run = peak_run(params)
    scorers = Scorers(run, params["samples"], replace(SAMPLED, seed=params["seed"]))
    parts = [
        _part(named_table(UNEDITED), scorers.named, run),
        _part(named_table(UNEDITED, again=True), scorers.again().named, run),
    ]
    for method, editor in editors_of(run, params["scorers"], params).items():
        parts.append(_part(method, partial(scorers.scores, editor), run, editor.settings()))
        named = partial(scorers.named, editor)
        parts.append(_part(named_table(method), named, run, editor.settings()))
    return publication_of(run, params, parts, params["scorers"], scorers.settings)


def _part(
    name: str,
    give: Callable[..., pd.DataFrame],
    run: PeakRun,
    settings: Mapping[str, Any] | None = None,
) -> Part:
    """A table of a run's records, as ``give`` makes it, or has it with ``stored_only``."""

    def table(*, stored_only: bool = False) -> pd.DataFrame:
        return small(give(stored_only=stored_only))

    cases = [record.case_id for record in run.data.records]
    return Part(name, settings or {}, table, partial(table, stored_only=True), cases)
