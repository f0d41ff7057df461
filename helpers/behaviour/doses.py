"""Which measure of damage a dose of a hyperparameter changes first.

A dose is a factor of one field of a method (``Variant``); 1 is the preset's value. The measures are PEAK's,
and how far an edit moves the next token at locality prompts (``doses_run``).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from helpers.editing.editors import Variant
from helpers.peak.metrics import metrics_table
from helpers.peak.tables import metric_contrast, scores_of
from helpers.results.archive import Run
from helpers.results.statistics import LEVEL, mean_interval

LOCALITY = "locality"  # the kind of a variant's stored table of shifts
SERIES = ["method", "field", "measure"]
DAMAGE = {"LS": "LS", "AFF_hard": "AFF", "ANF_hard": "ANF", "kl_alone": "KL", "top5_alone": "top 5"}
DAMAGE |= {"kl_stated": "KL, stated", "top5_stated": "top 5, stated"}


def doses_of(run: Run) -> pd.Series:
    """Values of the measures ``DAMAGE`` by method, field, dose, case_id, relation and measure."""
    measures_by_variant = {}
    for key in run.keys:
        if key.kind == LOCALITY and key.method in run.tables:
            shifts = run.tables[str(key)].pivot_table(["kl", "top5"], "case_id", "asked")
            shifts.columns = shifts.columns.map("_".join)
            metrics = metrics_table(scores_of(run, only=[key.method])[key.method])
            measures_by_variant[Variant.parse(key.method)] = metrics.join(shifts)
    tables_by_dose = {}
    for variant, measures_of_variant in measures_by_variant.items():
        preset = Variant(variant.method)
        if variant.times and variant.value and preset in measures_by_variant:
            tables_by_dose[variant.method, variant.field, variant.value] = measures_of_variant
            tables_by_dose[variant.method, variant.field, 1.0] = measures_by_variant[preset]
    doses = pd.concat(tables_by_dose, names=["method", "field", "dose"])
    return doses[[*DAMAGE]].rename_axis(columns="measure").stack()  # type: ignore[return-value]


def first_dose(measure: str, doses: pd.DataFrame) -> float:
    """The smallest dose (column) from which on each differs from the lowest, tested downwards; or NaN."""
    smallest_dose = float("nan")
    lowest_dose, *higher_doses = doses.columns
    for higher_dose in reversed(higher_doses):
        if not metric_contrast(measure, doses[lowest_dose], doses[higher_dose]).p_value < LEVEL:
            break
        smallest_dose = float(higher_dose)
    return smallest_dose


def dose_table(doses: pd.Series) -> pd.DataFrame:
    """Slope per doubling of the dose: mean, interval, n, sd over records; level at 1; ``first_dose``."""
    rows_of_series = {}
    for (method, field, measure), values_of_series in doses.groupby(SERIES):
        values_by_dose = values_of_series.unstack("dose").dropna()
        doublings = np.log2(values_by_dose.columns.to_numpy(float))
        slopes = values_by_dose @ (doublings - doublings.mean()) / doublings.var() / len(doublings)
        rows_of_series[method, field, measure] = {
            **vars(mean_interval(slopes)),
            "at 1": values_by_dose[1.0].mean(),
            "sd": slopes.std(),
            "first dose": first_dose(str(measure), values_by_dose),
        }
    return pd.DataFrame.from_dict(rows_of_series, orient="index").rename_axis(SERIES)
