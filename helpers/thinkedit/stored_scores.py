"""ThinkEdit's published scores: one table of several runs, what it is of, and its metrics.

A run is one model on one layout of the edits, and is named after both (``run_name``). Its tables are
*exact*, *negated*, *sampled* and *texts* (by how the edits were looked at), *along* (how each edit of a
sequence fared right after it was made), and what their numbers stand for: *chains* (which facts make up
which chains) and *edits* (how much each edit holds). Some have *draws* and *estimators* of the unedited
model, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import lru_cache
from pathlib import Path

import pandas as pd

from helpers import paths
from helpers.paths import file_name
from helpers.records import skipped_words
from helpers.results.archive import ArchiveError, Run
from helpers.results.text import model_words
from helpers.thinkedit import tables
from helpers.thinkedit.knowgic import LAYOUTS
from helpers.thinkedit.known import DEFAULT, Known
from helpers.thinkedit.report_tables import Evaluation, evaluate_scores

DRAWN = ("samples", "temperature", "seed", "max_new_tokens", "first_line")  # of samples and texts
_MADE = ["layout", "preset", "dtype", "device"]


def run_name(model: str, layout: str) -> str:
    """The model's name alone for June 2025's edits, which are the paper's; else with the layout's."""
    return file_name(model) if layout == "2025-06" else paths.run_name(model, Path(layout).stem)


def scores_of(runs: Sequence[Run], kind: str) -> pd.DataFrame:
    """One table of several runs, with what they are of as columns (model, preset, …).

    Args:
        runs: published runs.
        kind: "exact", "negated", "sampled", "along" or "texts".

    Raises:
        ArchiveError: a run has no such table; the message says how to make it.
    """
    parts = []
    for run in runs:
        if kind not in run.tables:
            raise ArchiveError(
                f"run {run.name!r} has no table {kind!r}: publish it from a params file of notebook 06"
                f" with model: {run.about.source['model']} and this among its estimators"
            )
        settings = run.about.settings
        made = [how for part, how in settings.items() if part.startswith(f"{kind}: ")]
        skipped = max((how.get("skipped", 0) for how in made), default=0)
        about = {**run.about.source, **run.about.caption, **settings[kind]}
        of = {**about, "skipped": skipped_words(skipped)}
        parts.append(run.tables[kind].assign(**of))
    return pd.concat(parts, ignore_index=True)


def facts_of(run: Run, method: str, *, mode: str, rule: Known = DEFAULT) -> pd.DataFrame:
    """Each fact before and after a method's stored edits, as ``tables.exact_facts`` gives them.

    Raises:
        ArchiveError: the run has no exact scores of this method and mode.
    """
    scores = scores_of([run], "exact")
    after = scores[(scores["method"] == method) & (scores["mode"] == mode)]
    if after.empty:
        raise ArchiveError(f"run {run.name!r} has no exact scores of {method}, {mode}")
    before = scores[(scores["mode"] == "before") & scores["case_id"].isin(after["case_id"])]
    return tables.exact_facts(before, after, rule=rule)


def caption(scores: pd.DataFrame, about: str = "") -> str:
    """What scores are of: models, edits, preset, dtype and device, and how samples were drawn.

    Args:
        scores: from ``scores_of``.
        about: what else there is to say, e.g. estimator and mode.
    """
    drawn = [name for name in DRAWN if name in scores]
    edits = scores.groupby("model")["case_id"].transform("nunique")
    made = scores.assign(edits=edits).drop_duplicates(["model", *_MADE, "edits", "skipped", *drawn])
    lines = []
    for (layout, preset, dtype, device, count, skipped, *how), part in made.groupby(
        [*_MADE, "edits", "skipped", *drawn], sort=False
    ):
        source = f"KnowGIC {layout}" if layout in LAYOUTS else f"edits of {layout}"
        words = [
            f"ours: {', '.join(map(model_words, part['model'].unique()))}",
            source,
            f"{count} edits{skipped}",
            f"preset {preset}",
            f"{dtype} on {device}",
            *(f"{name} {value}" for name, value in zip(drawn, how, strict=True)),
            *([about] if about else []),
        ]
        lines.append(", ".join(words))
    return "\n".join(lines)


@lru_cache(maxsize=8)
def evaluation(
    runs: tuple[Run, ...],
    *,
    estimator: str = "exact",
    modes: tuple[str, ...] = (),
    rule: Known = DEFAULT,
) -> Evaluation:
    """All metrics of published runs.

    Args:
        runs: published runs.
        estimator: "exact" or "sampled".
        modes: of the edits; none: all.
        rule: of the exact estimator, see ``tables.exact_facts``.
    """
    parts = [_evaluated(run, estimator, modes, rule) for run in runs]
    names = [field.name for field in fields(Evaluation) if field.name != "estimator"]
    joined = {
        name: pd.concat([getattr(part, name) for part in parts], ignore_index=True)
        for name in names
    }
    return Evaluation(estimator, **joined)


def _evaluated(run: Run, estimator: str, modes: tuple[str, ...], rule: Known) -> Evaluation:
    scores = scores_of([run], estimator)
    if modes:
        scores = scores[scores["mode"].isin(["before", *modes])]
    return evaluate_scores(scores, run.tables["chains"], estimator=estimator, rule=rule)
