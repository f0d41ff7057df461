"""The ablations' published figures, each drawn from whatever studies are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from helpers.editing.variants import OBJECTIVES, Variant, objectives
from helpers.reporting import ablation_figures as figures
from helpers.reporting.ablation_tables import (
    by_label,
    finished,
    said_beside_factors,
    sequence_metrics,
    variant_metrics,
    with_field,
)
from helpers.reporting.ablations_stored import (
    FOLDER,
    StoredAblations,
    load_ablations,
    stored_ablations,
)
from helpers.reporting.peak_overview import additivity_pairs

# The runs notebook 04 shows; figures of others carry the run's name.
DEFAULT = "smollm2-135m_peak-cf"
DEFAULT_SAID = "smollm2-135m_peak-mini-cf"


def objectives_figure(stored: StoredAblations, editor: str) -> Figure:
    """APP short of one objective."""
    chosen = _metrics(stored, objectives(editor))
    scores = {v: _only(stored.scores[str(v)], table.index) for v, table in chosen.items()}
    return figures.objectives_panels(chosen, scores, caption=stored.described(*chosen.values()))


def neighbours_figure(stored: StoredAblations) -> Figure:
    """The number of neighbours APP is given, for every editor studied."""
    editors = editors_with(stored, "neighbours")
    metrics = variant_metrics(stored.scores)
    chosen = {v: t for e in editors for v, t in with_field(metrics, e, "neighbours").items()}
    return figures.neighbours_lines(
        chosen, editors=editors, caption=stored.described(*chosen.values())
    )


def fairer_figure(stored: StoredAblations) -> Figure:
    """Plain, all answers as targets, APP."""
    editors = [v.editor for v in _variants(stored) if v.method.endswith("+all")]
    wanted = [Variant(editor + suffix) for editor in editors for suffix in ("", "+all", "+app")]
    chosen = _metrics(stored, wanted)
    return figures.fairer_bars(chosen, caption=stored.described(*chosen.values()))


def editors_figure(stored: StoredAblations) -> Figure:
    """Every editor alone and with APP."""
    plain = [v for v in _variants(stored) if "+" not in v.method]
    wanted = [Variant(v.editor + suffix) for v in plain for suffix in ("", "+app")]
    chosen = _metrics(stored, wanted)
    return additivity_pairs(by_label(chosen), caption=stored.described(*chosen.values()))


def sensitivity_figure(stored: StoredAblations, editor: str) -> Figure:
    """One of APP's coefficients changed alone."""
    metrics = variant_metrics(stored.scores)
    fields = (*OBJECTIVES, "margin")
    chosen = {v: t for field in fields for v, t in with_field(metrics, editor, field).items()}
    caption = stored.described(*chosen.values())
    return figures.sensitivity_panels(chosen, editor=editor, caption=caption)


def sequences_figure(stored: StoredAblations) -> Figure:
    """Edits made one upon the other."""
    caption = stored.described(*stored.sequences.values())
    return figures.sequence_lines(sequence_metrics(stored), caption=caption)


def said_figure(stored: StoredAblations) -> Figure:
    """AFF and ANF against what the edited model says."""
    caption = stored.described(*stored.said.values())
    return figures.said_scatter(said_beside_factors(stored), caption=caption)


def ablation_figures(folder: Path = FOLDER) -> Iterator[tuple[str, str, Callable[[], Figure]]]:
    """Name, title and drawing of every figure whose data is stored."""
    for name in stored_ablations(folder):
        stored = load_ablations(name, folder)
        for key, title, draw in _available(stored):
            shown = DEFAULT_SAID if key == "said" else DEFAULT
            suffix = "" if name == shown else f"_{name}"
            yield f"04_{key}{suffix}", f"{title}, {name}", partial(draw, stored)


def _available(
    stored: StoredAblations,
) -> Iterator[tuple[str, str, Callable[[StoredAblations], Figure]]]:
    for editor in editors_with(stored, "alpha"):
        draw = partial(objectives_figure, editor=editor)
        yield f"objectives_{editor}", f"APP short of one objective, {editor}", draw
    if editors_with(stored, "neighbours"):
        yield "neighbours", "More neighbours for APP", neighbours_figure
    if any(v.method.endswith("+all") for v in _variants(stored)):
        yield "fairer", "Fairer baselines", fairer_figure
    if stored.scores:
        yield "editors", "Every editor with and without APP", editors_figure
    for editor in editors_with(stored, "margin"):
        draw = partial(sensitivity_figure, editor=editor)
        yield f"sensitivity_{editor}", f"APP's coefficients, {editor}", draw
    if stored.sequences:
        yield "sequences", "Edits made one upon the other", sequences_figure
    if any(state in stored.scores for state in stored.said):
        yield "said", "AFF and ANF against what the model says", said_figure


def _variants(stored: StoredAblations) -> list[Variant]:
    return [Variant.parse(name) for name in stored.scores]


def editors_with(stored: StoredAblations, field: str) -> list[str]:
    """Editors with a variant in this field of APP."""
    return list(dict.fromkeys(v.editor for v in _variants(stored) if v.field == field))


def _metrics(stored: StoredAblations, variants: list[Variant]) -> dict[Variant, pd.DataFrame]:
    names = [str(variant) for variant in variants]
    scores = {name: stored.scores[name] for name in names if name in stored.scores}
    return finished(variant_metrics(scores), variants)


def _only(scores: pd.DataFrame, case_ids: pd.Index) -> pd.DataFrame:
    return scores[scores["case_id"].isin(case_ids)]
