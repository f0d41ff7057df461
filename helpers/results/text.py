"""What tables and captions report in words: verdicts, intervals, models, the papers' own numbers.

A claim *holds* where the 95 % interval of its difference lies on the side it describes, is
*reversed* where the interval lies on the other, and *inconclusive* in between.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from helpers.paths import PACKAGED
from helpers.results.statistics import LEVEL, Contrast, Estimate, holm

INCONCLUSIVE = "inconclusive"
# Every packaged model has its words; the light modules that write captions load no weights.
PACKAGED_WORDS = {
    "smollm2-135m": "SmolLM2-135M-Instruct, dequantised from 4 bits (Q4_1)",
    "gemma3-270m": "Gemma 3 270M, dequantised from 4 bits (q4_k_m)",
    "qwen2.5-coder-1.5b": "Qwen2.5-Coder-1.5B-Instruct, tuned for code, dequantised from 4 bits (q4_k_m)",
}
_PUBLISHED = PACKAGED / "published"


@dataclass(frozen=True)
class Evidence:
    """One comparison: the difference is positive where the finding says so, in fractions."""

    finding: str
    measure: str
    contrast: Contrast

    @property
    def difference(self) -> Estimate:
        """The difference and its interval."""
        return self.contrast.difference

    @property
    def verdict(self) -> str:
        """``holds``, ``reversed`` or ``inconclusive``."""
        if self.difference.low > 0:
            return "holds"
        return "reversed" if self.difference.high < 0 else INCONCLUSIVE


def mark(contrast: Contrast, *, higher_is_better: bool) -> str:
    """``†`` where the second side is better with p < 0.05, ``‡`` where it is worse, else nothing."""
    if not contrast.p_value < LEVEL:
        return ""
    return "†" if (contrast.difference.mean > 0) == higher_is_better else "‡"


def survivors(verdicts: Sequence[str], p_values: Sequence[float]) -> list[str]:
    """The verdicts of several tests after Holm's correction for their number."""
    corrected = zip(verdicts, holm(p_values), strict=True)
    return [verdict if p_value < LEVEL else INCONCLUSIVE for verdict, p_value in corrected]


def corrected_verdicts(evidence: Sequence[Evidence]) -> list[str]:
    """``survivors`` of evidence."""
    return survivors([e.verdict for e in evidence], [e.contrast.p_value for e in evidence])


def findings_table(evidence: Sequence[Evidence]) -> pd.DataFrame:
    """Evidence as text: finding, measure, difference (percentage points), n, verdict and ``Holm``."""
    columns = ["finding", "measure", "difference", "n", "verdict", "Holm"]
    rows = []
    for e, left in zip(evidence, corrected_verdicts(evidence), strict=True):
        difference = in_points(e.difference, signed=True)
        rows.append((e.finding, e.measure, difference, e.difference.n, e.verdict, left))
    return pd.DataFrame(rows, columns=columns)


def with_interval(estimate: Estimate, *, digits: int = 2, signed: bool = False) -> str:
    """``0.17 [0.05, 0.41]``; without brackets where there is no interval, n/a where no value."""
    if np.isnan(estimate.mean):
        return "n/a"
    sign = "+z" if signed else "z"  # z: no minus before a zero
    mean, low, high = (
        f"{value:{sign}.{digits}f}" for value in (estimate.mean, estimate.low, estimate.high)
    )
    return mean if np.isnan(estimate.low) else f"{mean} [{low}, {high}]"


def in_points(estimate: Estimate, *, signed: bool = False) -> str:
    """A fraction in percent: ``87.6 ± 3.9``, or ``97.2 [92.2, 99.4]`` where the sides differ."""
    mean, low, high = (100 * value for value in (estimate.mean, estimate.low, estimate.high))
    text = with_interval(Estimate(mean, low, high, estimate.n), digits=1, signed=signed)
    if abs((high - mean) - (mean - low)) < 0.1:
        return f"{text.partition(' ')[0]} ± {(high - low) / 2:.1f}"
    return text


def caption(source: Mapping[str, Any], *parts: str) -> str:
    """How a table or figure was made: model, the given parts, dtype and device.

    Args:
        source: of a published run (``About.source``).
        parts: such as data, number of records and preset; empty ones are omitted.
    """
    made = f"{source['dtype']} on {source['device']}"
    return ", ".join(filter(None, [f"ours: {model_words(source['model'])}", *parts, made]))


def model_words(name: str) -> str:
    """A model as captions name it: a packaged one with its weights, a folder by its last name.

    >>> model_words("smollm2-135m")
    'smollm2-135m (SmolLM2-135M-Instruct, dequantised from 4 bits (Q4_1))'
    """
    folder = Path(name).expanduser()
    if name in PACKAGED_WORDS:
        return f"{name} ({PACKAGED_WORDS[name]})"
    if not (folder.is_absolute() or folder.is_dir()):
        return name
    if not (folder / "config.json").is_file():  # drawn elsewhere
        return folder.name
    from helpers.models.weights import weight_bytes  # loads torch

    kind = json.loads((folder / "config.json").read_text("utf-8"))["model_type"]
    size = (weight_bytes(name, "float32") or 0) / 4e6
    return f"{folder.resolve().name} ({kind}, {size:.3g} million parameters)"


def published_table(name: str) -> pd.DataFrame:
    """A table of a paper in tidy form, such as ``"peak_table_3"``: one row per number.

    PEAK's tables have the columns model, dataset, method, metric (named as in
    ``helpers.peak.metrics``), value (percent in Tables 3, 4, 5 and 9), significant (PEAK's †: True
    or False where a method with APP is tested against the plain one, else missing), source and
    note (how to read the number, or a slip in the paper).
    """
    table = pd.read_csv(_PUBLISHED / f"{name}.csv", dtype=str, keep_default_na=False)
    if "significant" in table:
        marks = {"yes": True, "no": False, "": pd.NA}
        table["significant"] = table["significant"].map(marks).astype("boolean")
    return table.astype({"value": "float64"})
