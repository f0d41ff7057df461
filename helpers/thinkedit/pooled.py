"""Figures over all edits at once: sums per edit, pooled ratios, intervals by bootstrap over edits.

IFR weighs every deducible chain by 1/√length (Definition 3), CKP every known fact alike. An edit's chains
and facts belong together, so edits are what is resampled. Edits differ much in size: of few edits, or
where a few hold most chains, the percentile interval is somewhat too narrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from helpers.results.statistics import Estimate
from helpers.results.text import INCONCLUSIVE
from helpers.thinkedit.metrics import OVERALL, preservation_terms, recovery_terms, sums
from helpers.thinkedit.report_tables import Evaluation, of_mode

LEVEL = 0.05
RESAMPLES = 4_000
_KEYS = ["model", "method"]
_ALL_SIGNS = 14  # edits of which all sign patterns are tried
_POWER = 2.8  # standard errors that a test at 5 % finds in four of five cases


@dataclass(frozen=True)
class Difference:
    """A pooled difference on the same edits.

    Attributes:
        estimate: the difference with its 95 % interval; ``n`` counts edits.
        p_value: two-sided, of no difference: the share of all ways to flip the signs of the edits'
            differences that come out as far from zero.
        could_show: the smallest difference that as many edits would show in four of five cases.
    """

    estimate: Estimate
    p_value: float
    could_show: float

    @property
    def verdict(self) -> str:
        """``more``, ``less``, or ``inconclusive`` where chance explains the difference."""
        if not self.p_value < LEVEL:
            return INCONCLUSIVE
        return "more" if self.estimate.mean > 0 else "less"


def edit_sums(
    evaluation: Evaluation, *, mode: str, capped: bool = False, steps: str = OVERALL
) -> pd.DataFrame:
    """What each edit adds to numerator and denominator of every measure.

    Args:
        evaluation: all metrics.
        mode: which edits.
        capped: count ratios above 1 as 1 (the paper caps nothing).
        steps: chains of this length only, as text.

    Returns:
        One row per (model, method, measure, edit) with ``top``, ``bottom`` (sums) and ``n``, the
        chains, facts or prompts behind them. Edits that add nothing to a measure are left out.
    """
    chains = recovery_terms(of_mode(evaluation.chains, mode))
    if steps != OVERALL:
        chains = chains[chains["length"] == int(steps)]
    facts = preservation_terms(of_mode(evaluation.context, mode))
    terms = pd.concat([chains.assign(measure="IFR"), facts.assign(measure="CKP")])
    return sums(terms, [*_KEYS, "measure", "edit"], capped=capped)


def success_sums(evaluation: Evaluation, *, mode: str) -> pd.DataFrame:
    """The same of efficacy, generalisation and specificity: one value per edit."""
    if evaluation.success.empty:
        return pd.DataFrame(columns=[*_KEYS, "measure", "edit", "top", "bottom", "n"])
    values = of_mode(evaluation.success, mode).rename(columns={"case_id": "edit", "value": "top"})
    values = values.assign(measure=values["metric"].str.capitalize(), bottom=1.0, n=1)
    return values[[*_KEYS, "measure", "edit", "top", "bottom", "n"]]


def pooled(sums: pd.DataFrame) -> Estimate:
    """Ratio of the sums over all edits, with its interval; ``n`` counts edits."""
    return _estimate(sums["top"].to_numpy(float), sums["bottom"].to_numpy(float))


def per_edit(sums: pd.DataFrame) -> Estimate:
    """Mean over edits of each one's own ratio, with its interval."""
    return _estimate((sums["top"] / sums["bottom"]).to_numpy(float), np.ones(len(sums)))


def difference(first: pd.DataFrame, second: pd.DataFrame) -> Difference:
    """Pooled ratio of the second minus that of the first, over the edits that both have.

    Args:
        first: rows of ``edit_sums`` of one measure, model and method.
        second: the same of another method or mode; its denominators are the same.
    """
    both = first.merge(second, on="edit", suffixes=("_first", "_second"))
    change = (both["top_second"] - both["top_first"]).to_numpy(float)
    weight = both["bottom_second"].to_numpy(float)
    estimate = _estimate(change, weight)
    if len(both) < 2:
        return Difference(estimate, float("nan"), float("nan"))
    return Difference(
        estimate, _sign_flips(change), _POWER * float(_resampled(change, weight).std())
    )


def _sign_flips(change: NDArray[np.float64]) -> float:
    """Two-sided p-value of the sum of paired differences: all sign patterns of up to 14, else a draw."""
    n = len(change)
    if n <= _ALL_SIGNS:
        signs = np.array(list(product((1, -1), repeat=n)))
    else:
        draws = np.random.default_rng(0).choice((1, -1), size=(RESAMPLES, n))
        signs = np.vstack(
            [np.ones((1, n), dtype=draws.dtype), draws]
        )  # what was seen is one of them
    sums = np.abs(signs @ change)
    return float((sums >= abs(change.sum()) * (1 - 1e-9)).mean())


def _estimate(top: NDArray[np.float64], bottom: NDArray[np.float64]) -> Estimate:
    """A ratio of sums with the percentile bootstrap over edits; NaN ends below two edits."""
    n = len(top)
    value = float(top.sum() / bottom.sum()) if n else float("nan")
    if n < 2:
        return Estimate(value, float("nan"), float("nan"), n)
    ends = np.quantile(_resampled(top, bottom), [LEVEL / 2, 1 - LEVEL / 2])
    return Estimate(value, float(ends[0]), float(ends[1]), n)


def _resampled(top: NDArray[np.float64], bottom: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ratios of resampled edits, [resamples]; the same draws for all tables of as many edits."""
    n = len(top)
    drawn = np.random.default_rng(0).integers(n, size=(RESAMPLES, n))
    ratios: NDArray[np.float64] = top[drawn].sum(axis=1) / bottom[drawn].sum(axis=1)
    return ratios
