"""What counts as an object's probability, and from when on a model knows a fact (exact estimator)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

Measure = Literal["named", "mean"]


@dataclass(frozen=True)
class Known:
    """A rule that turns exact scores into probabilities and knowledge.

    Attributes:
        measure: ``"named"``, the probability that the next words name the object by any accepted name:
            the exact counterpart of the paper's share of responses; or ``"mean"``, the geometric mean
            over the tokens of the object as it is written (PEAK's measure), which is far higher for
            long names.
        threshold: probability from which an object is known.
        top: also known, whatever the probability: an object that, as it is written, is more probable
            than the new object and every rival of its kind (by the same measure). Such facts
            can be as improbable as 1e-8, and then p'/p says little. It is for graphs that are not
            the model's own, of which a small model knows next to nothing otherwise.
    """

    measure: Measure = "named"
    threshold: float = 0.05
    top: bool = False

    def __str__(self) -> str:
        what = "whole probability" if self.measure == "named" else "geometric mean"
        first = "first of its kind, or " if self.top else ""
        return f"{what}, known: {first}at least {self.threshold:g}"

    def probability(self, scores: pd.DataFrame, answer: str = "original") -> pd.Series:
        """Probability of an answer, "original" or "other" (the new object), of each row."""
        if self.measure == "named":
            return np.exp(scores[f"{answer}_named"])
        return np.exp(mean_log_probability(scores, answer))

    def of(self, scores: pd.DataFrame) -> pd.Series:
        """Whether each row's object is known."""
        likely = self.probability(scores) >= self.threshold
        return likely | self._first(scores) if self.top else likely

    def _first(self, scores: pd.DataFrame) -> pd.Series:
        if self.measure == "named":
            own, new, rival = (scores[name] for name in ("original_sum", "other_sum", "rival_sum"))
        else:
            own, new = (mean_log_probability(scores, answer) for answer in ("original", "other"))
            rival = scores["rival"]
        best = pd.concat([rival, new], axis=1).max(axis=1)
        return (own > best) & best.notna()


DEFAULT = Known()
BY_RANK = Known(top=True)  # for other models' graphs
BY_MEAN = Known("mean", top=True)  # the variant that counts most facts as known


def mean_log_probability(scores: pd.DataFrame, answer: str) -> pd.Series:
    """Mean over its tokens of the log-probability of an answer, "original" or "other"."""
    return scores[f"{answer}_sum"] / scores[f"{answer}_tokens"]
