"""What does an edit cost at equal strength? The same update, scaled, next to edits that are weaker anyway.

APP's edits make o* less probable than plain ones, and a weaker edit does less damage. An editor's update
is therefore multiplied by several *scales* (``strength_run``), from the unedited model (0) beyond
the update as it is (1). Its damage at the strength of another method is read off the piecewise linear curve
of group means, at the smallest scale at which the mean strength over records reaches the other method's.
Strength is P(o*), the probability of the new answer at the edit prompt (the geometric mean over its tokens),
or the share of records whose greedy free text names o*.

Intervals are percentiles of the bootstrap over relations (over records where they are of fewer than eight),
in which the matching scale is found anew; p is twice the smaller share of resamples on either side of zero.

*figures/data/matched/<model>_<dataset>* holds for each method and scale the scores (``rome, scale 0.5``) and
the known answers that greedy responses name (``named by rome, scale 0.5``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce

import numpy as np
import pandas as pd

from helpers.behaviour.agreement import UNEDITED, named_table
from helpers.editing.editors import method_label
from helpers.peak.metrics import metrics_table
from helpers.peak.tables import scores_of
from helpers.results.archive import NAMED_BY, Run, TableKey
from helpers.results.notes import ShownTable, with_note, with_relations
from helpers.results.statistics import (
    LEVEL,
    Contrast,
    Estimate,
    Numbers,
    holm,
    relation_count_of,
    too_few,
    unit_draws,
)
from helpers.results.text import in_points, with_p_values
from helpers.samples.design import POWER

RESAMPLES = 4_000
STRENGTHS = {"P": "P(o*)", "named": "naming"}  # by the column of measures
DAMAGES = ("AFF_hard", "ANF_hard")


def scale_state(scale: float) -> str:
    """The name of a scale in the store and in the names of tables: ``scale 0.5``."""
    return f"scale {scale:g}"


def scale_of(key: TableKey) -> float:
    """The scale in a table's name."""
    return float(key.mode.removeprefix("scale "))


@dataclass(frozen=True)
class StrengthCurve:
    """Measures of one method's records at each of its scales, on the same records at all of them."""

    method: str
    by_scale: Mapping[float, pd.DataFrame]  # ascending; columns P, named and those of ``METRICS``

    @property
    def scales(self) -> list[float]:
        """Ascending; 0 is the unedited model."""
        return [*self.by_scale]

    def on(self, index: pd.Index) -> StrengthCurve:
        """The curve of these records alone."""
        return replace(self, by_scale={s: table.loc[index] for s, table in self.by_scale.items()})

    def values(self, measure: str) -> Numbers:
        """One measure [records, scales]."""
        return np.column_stack([table[measure] for table in self.by_scale.values()])


def strength_curves(run: Run) -> dict[str, StrengthCurve]:
    """The curve of every method of a stored run, each on the records that count in all of its tables."""
    named_tables = {key: str(key) for key in run.keys if key.kind == NAMED_BY}
    scores_keys = [key for key in run.keys if not key.kind and key.mode.startswith("scale ")]
    scores_by_name = scores_of(run, only=[str(key) for key in scores_keys])
    unedited_names = run.tables[named_table(UNEDITED)]
    tables: dict[str, dict[float, pd.DataFrame]] = {}
    for key in scores_keys:
        named_key = replace(key, kind=NAMED_BY)
        if named_key not in named_tables:
            continue  # not yet published
        scores = scores_by_name[str(key)]
        of_method = tables.setdefault(key.method, {})
        of_method[scale_of(key)] = strength_measures(scores, run.tables[str(named_key)])
        if 0.0 not in of_method:
            before = scores.assign(sum_after=scores["sum_before"])
            of_method[0.0] = strength_measures(before, unedited_names)
    curves = {}
    for method, by_scale in tables.items():
        measures = [*STRENGTHS, *DAMAGES]
        complete = [table.dropna(subset=measures).index for table in by_scale.values()]
        common = reduce(partial(pd.Index.intersection, sort=False), complete)
        ordered = {scale: by_scale[scale] for scale in sorted(by_scale)}
        curves[method] = StrengthCurve(method, ordered).on(common)
    return curves


def strength_measures(scores: pd.DataFrame, names: pd.DataFrame) -> pd.DataFrame:
    """Each record's metrics, P(o*) at the edit prompt (``P``), and whether o* is ``named`` (0 or 1)."""
    metrics = metrics_table(scores)
    is_target = names["list"] == "target"
    is_named = is_target.groupby(names["case_id"]).any().astype(float)
    case_ids = metrics.index.get_level_values("case_id")
    return metrics.assign(
        P=target_probability(scores, metrics.index),
        named=is_named.reindex(case_ids).to_numpy(float),
    )


def target_probability(scores: pd.DataFrame, records: pd.Index) -> Numbers:
    """P(o*) after the edit at the edit prompt, of each of these records."""
    target = scores[(scores["role"] == "edit") & (scores["list"] == "target")]
    by_case = target.set_index("case_id")
    score_of_target = by_case["sum_after"] / by_case["tokens"]
    case_ids = records.get_level_values("case_id")
    return np.exp(score_of_target.reindex(case_ids).to_numpy(float))


@dataclass(frozen=True)
class Matched:
    """An editor's scaled update and another method at equal strength, on the same records."""

    curve: StrengthCurve
    other: pd.DataFrame  # of the other method by record
    other_method: str
    strength: str  # of ``STRENGTHS``

    @property
    def is_primary(self) -> bool:
        """Whether an editor is compared with itself with APP, at equal P(o*)."""
        return self.strength == "P" and self.other_method == f"{self.curve.method}+app"

    @property
    def scale(self) -> float:
        """The scale at which the curve has the other method's mean strength; NaN where it never has."""
        level = self.other[self.strength].to_numpy(float).mean()
        strengths = self.curve.values(self.strength).mean(0)
        position = matching_position(strengths[None], np.array([level]))
        scales = np.array(self.curve.scales, dtype=float)
        return float(value_at(scales[None], position)[0])

    def damage(self, measure: str) -> tuple[float, float]:
        """A measure's mean under the scaled update at equal strength, and under the other method."""
        everyone = np.ones((1, len(self.other)))
        matched, other = self._means(everyone, measure)
        return float(matched[0]), float(other[0])

    def contrast(self, measure: str) -> Contrast:
        """How much lower a measure is under the other method at equal strength, with bootstrap interval."""
        matched, other = self._means(self._resamples, measure)
        differences = matched - other
        defined = differences[~np.isnan(differences)]
        matched_mean, other_mean = self.damage(measure)
        mean = matched_mean - other_mean
        relation_count = relation_count_of(self.other[measure])
        if len(defined) < 0.95 * len(differences) or np.isnan(mean):
            no_interval = Estimate(mean, float("nan"), float("nan"), len(self.other))
            return Contrast(no_interval, float("nan"), relation_count=relation_count)
        low, high = np.percentile(defined, [100 * LEVEL / 2, 100 - 100 * LEVEL / 2])
        smaller_side = min((defined <= 0).sum(), (defined >= 0).sum())
        p_value = min(1.0, 2 * float(smaller_side + 1) / (len(defined) + 1))
        if too_few(relation_count):
            p_value = float("nan")
        estimate = Estimate(mean, float(low), float(high), len(self.other))
        return Contrast(estimate, p_value, relation_count=relation_count)

    def detectable(self, measure: str) -> float:
        """The smallest difference that is found in four of five samples: 2.8 bootstrap errors."""
        matched, other = self._means(self._resamples, measure)
        return POWER * float(np.nanstd(matched - other))

    @cached_property
    def _resamples(self) -> Numbers:
        """How often each record is in each resample [resamples, records]."""
        return unit_draws(self.other[self.strength], draws=RESAMPLES)[1:]

    def _means(self, counts: Numbers, measure: str) -> tuple[Numbers, Numbers]:
        """Of each resample a measure's mean at equal strength, and that of the other method."""
        weights = counts / counts.sum(1, keepdims=True)  # [resamples, records]
        strengths = weights @ self.curve.values(self.strength)  # [resamples, scales]
        levels = weights @ self.other[self.strength].to_numpy(float)
        damages = weights @ self.curve.values(measure)
        position = matching_position(strengths, levels)
        return value_at(damages, position), weights @ self.other[measure].to_numpy(float)


def matching_position(strengths: Numbers, levels: Numbers) -> Numbers:
    """Where each row of a piecewise linear curve [rows, points] first reaches its level [rows].

    In units of points: 1.5 is halfway between the second and the third. NaN where it never does.
    """
    levels = np.asarray(levels, dtype=float)
    reaches = strengths >= levels[:, None]
    right = reaches.argmax(1)  # the first point at or above the level
    left = np.maximum(right - 1, 0)
    rows = np.arange(len(strengths))
    rise = strengths[rows, right] - strengths[rows, left]
    share = np.divide(
        levels - strengths[rows, left], rise, out=np.ones_like(levels), where=rise > 0
    )
    position = np.where(right > 0, left + share, 0.0)
    return np.where(reaches.any(1), position, np.nan)


def value_at(values: Numbers, position: Numbers) -> Numbers:
    """A piecewise linear curve [rows, points] at a position [rows] in units of points; NaN at NaN."""
    whole = np.nan_to_num(position)
    left = np.minimum(whole.astype(int), values.shape[1] - 1)
    right = np.minimum(left + 1, values.shape[1] - 1)
    share = whole - left
    rows = np.arange(len(values))
    between = (1 - share) * values[rows, left] + share * values[rows, right]
    return np.where(np.isnan(position), np.nan, between)


def matched_pairs(curves: Mapping[str, StrengthCurve]) -> list[Matched]:
    """Every editor's curve with its own methods at scale 1, with APP and without, at either strength.

    R-ROME is a form of ROME; a method that is no form of a scaled editor is compared with each of them.
    """
    scaled = {name: curve for name, curve in curves.items() if len(curve.scales) > 2}
    pairs = []
    for name, curve in scaled.items():
        for other_name, other_curve in curves.items():
            editor = other_name.partition("+")[0]
            is_form = editor in (name, f"r-{name}")
            is_form_of_another = editor.removeprefix("r-") in scaled
            if other_name in scaled or (is_form_of_another and not is_form):
                continue
            other = other_curve.by_scale[1.0]
            common = curve.by_scale[1.0].index.intersection(other.index, sort=False)
            if common.empty:
                continue
            for strength in STRENGTHS:
                pairs.append(Matched(curve.on(common), other.loc[common], other_name, strength))
    return pairs


def less_damage(pairs: Sequence[Matched]) -> dict[tuple[str, str], bool]:
    """By editor and measure whether APP does less damage at equal strength, after Holm's correction."""
    contrasts = {
        (pair.curve.method, measure): pair.contrast(measure)
        for pair in pairs
        for measure in DAMAGES
    }
    corrected = holm([contrast.p_value for contrast in contrasts.values()])
    return {
        key: bool(p_value < LEVEL and contrast.difference.mean > 0)
        for (key, contrast), p_value in zip(contrasts.items(), corrected, strict=True)
    }


def matched_table(run: Run) -> ShownTable:
    """Damage at equal strength, a row an editor, the method that it is matched with, and a strength.

    ``at 1`` is the editor's own update. ``difference`` is the scaled update's damage minus the other
    method's: positive where the other method does less damage than a weaker edit. ``Holm`` corrects for all
    tests with the editor's own +APP at equal P(o*), the primary ones.
    """
    compared = [
        (pair, measure) for pair in matched_pairs(strength_curves(run)) for measure in DAMAGES
    ]
    names = [
        {
            "method": method_label(pair.curve.method),
            "matched with": method_label(pair.other_method),
            "at equal": STRENGTHS[pair.strength],
            "measure": measure.removesuffix("_hard"),
        }
        for pair, measure in compared
    ]
    return table_at_equal_strength(compared, names, [pair.is_primary for pair, _ in compared])


def table_at_equal_strength(
    compared: Sequence[tuple[Matched, str]],
    names: Sequence[Mapping[str, str]],
    is_primary: Sequence[bool],
) -> ShownTable:
    """A row for each match and measure, under these names: levels, both damages, and their difference."""
    rows = []
    p_values = []
    for (pair, measure), names_of_row in zip(compared, names, strict=True):
        contrast = pair.contrast(measure)
        matched_mean, other_mean = pair.damage(measure)
        p_values.append(contrast.p_value)
        rows.append(
            {
                **names_of_row,
                "level": f"{100 * pair.other[pair.strength].mean():.1f}",
                "scale": "–" if np.isnan(pair.scale) else f"{pair.scale:.2f}",
                "at 1": f"{100 * pair.curve.by_scale[1.0][measure].mean():.1f}",
                "scaled": "–" if np.isnan(matched_mean) else f"{100 * matched_mean:.1f}",
                "other": f"{100 * other_mean:.1f}",
                "difference": in_points(contrast.difference, signed=True),
                "n": contrast.difference.n,
                "detects": f"{100 * pair.detectable(measure):.1f}",
            }
        )
    table = with_p_values(rows, p_values, is_primary).set_index([*names[0]])
    note = (
        "level and damage in percent; scaled: the update at the scale that has the other's level; detects:"
        " the smallest difference found in four of five samples (2.8 bootstrap errors)"
    )
    return with_relations(with_note(table, note), (pair.other[m] for pair, m in compared))
