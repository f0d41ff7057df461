"""The published run of every scorer: notebook 04's methods ``scorers``, a table each and one of names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from helpers.behaviour.scorers import AGAIN, SAMPLED, UNEDITED, Scorers
from helpers.peak.publish import editors_of, part, peak_run, published
from helpers.results.publish import Publication


def publication(params: Mapping[str, Any]) -> Publication:
    """Methods under every scorer, and the known answers that each state's responses name."""
    run = peak_run(params)
    scorers = Scorers(run, params["samples"], replace(SAMPLED, seed=params["seed"]))
    parts = [
        part(f"named by {UNEDITED}", run, scorers.named),
        part(f"named by {AGAIN}", run, scorers.again().named),
    ]
    for method, editor in editors_of(run, params["scorers"], params).items():
        parts.append(part(method, run, scorers.scores, editor))
        parts.append(part(f"named by {method}", run, scorers.named, editor))
    return published(run, params, parts, params["scorers"], scorers.settings)
