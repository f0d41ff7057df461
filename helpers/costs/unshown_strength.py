"""Does APP protect answers that it was not shown more than a weaker edit does? From two stored studies.

``held_out_run`` has APP that is given half of a record's lists, ``strength_run`` the same editors' plain
updates at several scales; both are of the same records. The scaled update and APP are compared at equal P(o*)
on the half that APP was not shown, as ``strength`` compares them on whole lists.
"""

from __future__ import annotations

from functools import partial, reduce

import pandas as pd

from helpers.costs.held_out_answers import HALF, SHOWN, UNSHOWN, editors_held_out, half_measures
from helpers.costs.strength import (
    Matched,
    StrengthCurve,
    scale_of,
    table_at_equal_strength,
    target_probability,
)
from helpers.editing.editors import method_label
from helpers.peak.metrics import KEYS
from helpers.peak.tables import scores_of
from helpers.results.archive import Run, TableKey
from helpers.results.notes import ShownTable

UNSHOWN_DAMAGES = ("AFF", "ANF")


def unshown_matches(held_out: Run, matched: Run) -> dict[tuple[str, str], Matched]:
    """By editor and measure the scaled plain update and APP at equal P(o*), on the unshown half.

    Editors that both runs have, on the records of both that have the measure at every scale.
    """
    scores_of_halves = scores_of(held_out)
    matches = {}
    for editor in editors_held_out(held_out.keys):
        scaled_keys = [key for key in matched.keys if not key.kind and key.method == editor]
        if len(scaled_keys) < 2:
            continue  # this editor's update was not scaled
        halves = scores_of_halves[editor][[*KEYS, "half"]]
        scaled_scores = scores_of(matched, only=[str(key) for key in scaled_keys])
        by_scale = {
            scale_of(key): scaled_scores[str(key)].merge(halves, on=KEYS, validate="1:1")
            for key in scaled_keys
        }
        (plain, *_) = by_scale.values()
        by_scale[0.0] = plain.assign(sum_after=plain["sum_before"])
        curve_tables = {scale: unshown_measures(by_scale[scale]) for scale in sorted(by_scale)}
        other = unshown_measures(scores_of_halves[str(TableKey("", f"{editor}+app", HALF))])
        for measure in UNSHOWN_DAMAGES:
            tables = [*curve_tables.values(), other]
            complete = [table.dropna(subset=["P", measure]).index for table in tables]
            common = reduce(partial(pd.Index.intersection, sort=False), complete)
            curve = StrengthCurve(editor, curve_tables).on(common)
            matches[editor, measure] = Matched(curve, other.loc[common], f"{editor}+app", "P")
    return matches


def unshown_measures(scores: pd.DataFrame) -> pd.DataFrame:
    """Each record's AFF and ANF of the unshown half, and P(o*) at the edit prompt (``P``).

    NaN where either half has no value, so that the records are those of ``held_out_table``.
    """
    measures = half_measures(scores)
    columns = {
        name: measures[name, UNSHOWN].where(measures[name, SHOWN].notna())
        for name in UNSHOWN_DAMAGES
    }
    return pd.DataFrame({**columns, "P": target_probability(scores, measures.index)})


def unshown_strength_table(held_out: Run, matched: Run) -> ShownTable:
    """Damage to unshown answers at equal P(o*), a row an editor and a measure.

    ``scaled`` is the plain update with the mean P(o*) of APP that is given half of both lists, ``other`` that
    APP. ``difference`` is positive where APP does less damage than a weaker edit; ``Holm`` corrects for all
    rows.
    """
    matches = unshown_matches(held_out, matched)
    compared = [(match, measure) for (_, measure), match in matches.items()]
    names = [
        {"method": method_label(editor), "measure, unshown half": measure}
        for editor, measure in matches
    ]
    return table_at_equal_strength(compared, names, [True] * len(compared))
