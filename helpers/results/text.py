"""What tables and captions report in words: verdicts, intervals, the papers' own numbers.

A claim *holds* where the test of its difference rejects zero on the side that it describes, is *reversed*
where it does so on the other, and is *inconclusive* otherwise: also where the records are of too few
relations for a test.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from helpers import UserError
from helpers.paths import PACKAGED
from helpers.results.archive import PACKAGED_WORDS, Run, model_words
from helpers.results.notes import ShownTable, with_power, with_relations
from helpers.results.statistics import LEVEL, Contrast, Estimate, detectable, holm

INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Evidence:
    """One comparison: the difference higher - lower is positive where the finding holds, in fractions.

    The sides are methods, variants of one editor, data sets, or, without a ``metric``, two metrics. A mean
    that is compared with a level has the level as ``lower`` and no ``higher``.
    """

    finding: str
    contrast: Contrast
    metric: str = ""  # by name, such as "AFF_hard"
    higher: str = ""  # the side that is higher where the finding holds
    lower: str = ""
    editor: str = ""  # label of the editor of which both sides are variants
    methods: str = ""  # what was edited by, where the sides do not state it
    samples: tuple[pd.Series, ...] = ()  # differences by record, or two samples of values

    @property
    def measure(self) -> str:
        """What is compared, in words: ``AFF hard, ROME: APP - plain``, ``ES - 90, ROME``."""
        compared_sides = f"{self.higher} - {self.lower}" if self.higher else f"- {self.lower}"
        metric = self.metric.replace("_", " ")
        if self.editor:
            return f"{metric}, {self.editor}: {compared_sides}"
        metric_and_sides = f"{metric} {compared_sides}" if metric else compared_sides
        return f"{metric_and_sides}, {self.methods}" if self.methods else metric_and_sides

    @property
    def difference(self) -> Estimate:
        """The difference and its interval."""
        return self.contrast.difference

    @property
    def verdict(self) -> str:
        """``holds``, ``reversed`` or ``inconclusive``."""
        if not self.contrast.p_value < LEVEL:
            return INCONCLUSIVE
        return "holds" if self.difference.mean > 0 else "reversed"

    @property
    def words(self) -> str:
        """The verdict, and why there is none where the records are of too few relations."""
        if self.contrast.too_few_relations:
            return f"{INCONCLUSIVE} by relation ({self.contrast.relation_count} relations)"
        return self.verdict


def mark(contrast: Contrast, *, higher_is_better: bool) -> str:
    """``†`` where the second side is better with p < 0.05, ``‡`` where it is worse, else nothing."""
    if not contrast.p_value < LEVEL:
        return ""
    return "†" if (contrast.difference.mean > 0) == higher_is_better else "‡"


def verdicts_after_holm(verdicts: Sequence[str], p_values: Sequence[float]) -> list[str]:
    """The verdicts of several tests after Holm's correction for their number."""
    corrected = zip(verdicts, holm(p_values), strict=True)
    return [verdict if p_value < LEVEL else INCONCLUSIVE for verdict, p_value in corrected]


def corrected_verdicts(evidence: Sequence[Evidence]) -> list[str]:
    """``verdicts_after_holm`` of one run's evidence. A family is what is tested for one of its findings."""
    verdicts = [""] * len(evidence)
    for finding in dict.fromkeys(item.finding for item in evidence):
        family = [index for index, item in enumerate(evidence) if item.finding == finding]
        verdicts_alone = [evidence[index].verdict for index in family]
        p_values = [evidence[index].contrast.p_value for index in family]
        for index, verdict in zip(
            family, verdicts_after_holm(verdicts_alone, p_values), strict=True
        ):
            verdicts[index] = verdict
    return verdicts


def names_in_words(names: Iterable[str]) -> str:
    """Names as a sentence lists them, such as ``FT-M, ROME and MEMIT``."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def findings_table(evidence: Sequence[Evidence]) -> ShownTable:
    """Evidence as text, in points, with Holm's correction for all tests of the same finding."""
    columns = ["finding", "measure", "difference", "n", "verdict"]
    rows_of_evidence = []
    for item in evidence:
        difference = in_points(item.difference, signed=True)
        row = (item.finding, item.measure, difference, item.difference.n, item.words)
        rows_of_evidence.append(row)
    table = pd.DataFrame(rows_of_evidence, columns=columns)
    table = table.assign(Holm=corrected_verdicts(evidence))
    least_detectable = [100 * detectable(*item.samples) for item in evidence]
    shown = with_power(table, least_detectable, table["n"], unit=" points")
    return with_relations(shown, (sample for item in evidence for sample in item.samples))


def with_interval(estimate: Estimate, *, digits: int = 2, signed: bool = False) -> str:
    """``0.17 [0.05, 0.41]``; without brackets where there is no interval, n/a where no value.

    A ``signed`` difference whose interval excludes zero has no bound that is rounded to zero: that bound gets
    the digits it needs.
    """
    if np.isnan(estimate.mean):
        return "n/a"
    sign = "+z" if signed else "z"  # z: no minus before a zero
    mean_text = f"{estimate.mean:{sign}.{digits}f}"
    excludes_zero = signed and (estimate.low > 0 or estimate.high < 0)
    low_text, high_text = (
        f"{bound:{sign}.{_digits_of_bound(bound, digits) if excludes_zero else digits}f}"
        for bound in (estimate.low, estimate.high)
    )
    return mean_text if np.isnan(estimate.low) else f"{mean_text} [{low_text}, {high_text}]"


def _digits_of_bound(bound: float, digits: int) -> int:
    """The digits with which a bound is not rounded to zero, at most four more."""
    for more in range(5):
        if round(bound, digits + more) != 0:
            return digits + more
    return digits


def with_p_values(
    rows: Sequence[Mapping[str, Any]], p_values: Sequence[float], is_primary: Sequence[bool]
) -> pd.DataFrame:
    """Rows of a table with the p-value of each one's test, a dash where there is no test.

    ``Holm`` is the p-value of a primary test, corrected for the number of these; empty for the others.
    """
    if not rows:
        raise UserError("nothing to compare is stored yet: publish the other parts of the run, too")
    is_corrected = np.array(is_primary, dtype=bool)
    corrected = np.full(len(rows), np.nan)
    corrected[is_corrected] = holm(np.array(p_values, dtype=float)[is_corrected])
    return pd.DataFrame(rows).assign(
        p=[_p_value_text(p_value) for p_value in p_values],
        Holm=np.where(is_corrected, [_p_value_text(p_value) for p_value in corrected], ""),
    )


def _p_value_text(p_value: float) -> str:
    return "–" if np.isnan(p_value) else f"{p_value:.4f}"


def in_points(estimate: Estimate, *, signed: bool = False) -> str:
    """A fraction in percent: ``87.6 ± 3.9``, or ``97.2 [92.2, 99.4]`` where the sides differ."""
    mean = 100 * estimate.mean
    low = 100 * estimate.low
    high = 100 * estimate.high
    interval_text = with_interval(Estimate(mean, low, high, estimate.n), digits=1, signed=signed)
    if abs((high - mean) - (mean - low)) < 0.1:
        return f"{interval_text.partition(' ')[0]} ± {(high - low) / 2:.1f}"
    return interval_text


def caption(source: Mapping[str, Any], *parts: str) -> str:
    """How a table or figure was made: model, the given parts (not the empty ones), dtype and device."""
    made_on = f"{source['dtype']} on {source['device']}"
    return ", ".join(filter(None, [f"ours: {model_words(source['model'])}", *parts, made_on]))


def footer(runs: Sequence[Run], data: str, *notes: str, with_app: bool = True) -> str:
    """A figure's footer: model, data, preset, dtype and device in short, then what its marks mean.

    Several models are named by the figure itself. Tables have it all (``caption``). ``with_app``: whether the
    figure shows a method with APP, whose settings may be extrapolated.
    """
    source_fields = [{**run.about.source, **run.about.caption} for run in runs]

    def values_of(field: str) -> list[str]:
        return list(
            dict.fromkeys(str(fields[field]) for fields in source_fields if fields.get(field))
        )

    models = values_of("model")
    model = model_words(models[0]).partition(" (")[0] if len(models) == 1 else "models"
    packaged = [model_name for model_name in models if model_name in PACKAGED_WORDS]
    if packaged == models:
        model = f"{model} from 4 bits"
    elif packaged:
        model = f"{model} ({', '.join(packaged)} from 4 bits)"
    presets = values_of("preset")
    preset = " or ".join(dict.fromkeys(words.partition(" (APP")[0] for words in presets))
    is_extrapolated = with_app and any("extrapolated" in words for words in presets)
    made_of = [
        model,
        data,
        f"preset {preset}{' (APP extrapolated)' if is_extrapolated else ''}" if preset else "",
        f"{' or '.join(values_of('dtype'))} on {' or '.join(values_of('device'))}",
    ]
    return "; ".join(filter(None, [", ".join(filter(None, made_of)), *notes]))


def published_table(name: str) -> pd.DataFrame:
    """A table of a paper in tidy form, such as ``"peak_table_3"``: one row per number.

    ``significant`` is PEAK's †, missing where it tests nothing; ``note`` tells how to read a number.
    """
    csv_file = PACKAGED / "published" / f"{name}.csv"
    printed_numbers = pd.read_csv(csv_file, dtype=str, keep_default_na=False)
    if "significant" in printed_numbers:
        is_significant = printed_numbers["significant"].map({"yes": True, "no": False})
        printed_numbers["significant"] = is_significant.astype("boolean")
    return printed_numbers.astype({"value": "float64"})
