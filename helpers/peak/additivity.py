"""Additivity of one prompt: what appending an answer does to the answers around it.

Formulas of PEAK, Section 4, and the filter of Section 5.1. Every function takes natural
log-probabilities, one per answer; rankings are compared there, where nothing underflows.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

Compare = Literal["log-probability", "weight"]


@dataclass(frozen=True)
class Kept:
    """Indices of the answers that count at one prompt, ascending."""

    correct: NDArray[np.intp]
    hard: NDArray[np.intp]
    random: NDArray[np.intp]

    @property
    def usable(self) -> bool:
        """Whether no list is empty; a prompt with an empty list is skipped."""
        return bool(len(self.correct) and len(self.hard) and len(self.random))


def keep_answers(
    correct: ArrayLike, hard: ArrayLike, random: ArrayLike, *, hard_share: float = 0.2
) -> Kept:
    """Choose the answers the unedited model ranks as it should (PEAK, Section 5.1).

    A correct answer is dropped when at least ``hard_share`` of the hard false answers are strictly
    more probable. Then a false answer is dropped when it is at least as probable as the least
    probable correct answer kept. The share is the authors' code's; the paper names no value.

    Args:
        correct: pre-edit scores of the correct answers, shape (N,); any increasing function of
            the probability serves.
        hard: the same for the hard false answers, shape (M,).
        random: the same for the random false answers, shape (R,).
        hard_share: between 0 and 1.
    """
    correct, hard, random = (_vector(values) for values in (correct, hard, random))
    nothing = np.arange(0)
    if not len(hard):
        return Kept(nothing, nothing, nothing)
    above = (hard[None, :] > correct[:, None]).sum(axis=1)
    kept = np.flatnonzero(above / len(hard) < hard_share)
    if not len(kept):
        return Kept(nothing, nothing, nothing)
    floor = correct[kept].min()
    return Kept(kept, np.flatnonzero(hard < floor), np.flatnonzero(random < floor))


def ranking_forgetting_factor(
    correct: ArrayLike, false: ArrayLike, *, compare: Compare = "log-probability"
) -> float:
    """RFF: weighted share of correct answers below the most probable false one (Equation 1).

    Args:
        correct: post-edit log-probabilities of the correct answers, shape (N,).
        false: the same for the false answers, shape (M,).
        compare: rank by log-probability, or by the weight sigmoid(P) as the authors' code does,
            where probabilities under 1e-16 tie.
    """
    correct, false = _vector(correct), _vector(false)
    weight = _weight(correct)
    if compare == "weight":
        correct, false = weight, _weight(false)
    return float(weight[correct < false.max()].sum() / weight.sum())


def ranking_noise_factor(
    correct: ArrayLike, false: ArrayLike, *, compare: Compare = "log-probability"
) -> float:
    """RNF: weighted share of false answers above the least probable correct one (Equation 2).

    Arguments as in ``ranking_forgetting_factor``.
    """
    correct, false = _vector(correct), _vector(false)
    weight = _weight(false)
    if compare == "weight":
        correct, false = _weight(correct), weight
    return float(weight[false > correct.min()].sum() / weight.sum())


def probability_change(before: ArrayLike, after: ArrayLike) -> float:
    """CPC or FPC: mean probability after editing over the mean before (Equations 3 and 4).

    Args:
        before: log-probabilities of the unedited model, shape (N,).
        after: of the edited model, the same answers.
    """
    # For lists this short numpy's call is some seventy times faster than scipy's logsumexp.
    after_sum, before_sum = (np.logaddexp.reduce(_vector(each)) for each in (after, before))
    with np.errstate(over="ignore"):  # a ratio beyond 1e308 is reported as infinite
        return float(np.exp(after_sum - before_sum))


def additive_forgetting_factor(*, rff: float, cpc: float) -> float:
    """AFF, from 0 (nothing forgotten) to 1 (Equation 5)."""
    return 1 - (1 - rff) * min(1.0, cpc)


def additive_noising_factor(*, rnf: float, fpc: float) -> float:
    """ANF, from 0 (no noise added) to 1 (Equation 6)."""
    return 1 - (1 - rnf) / max(1.0, fpc)


def additivity(
    *,
    correct_before: ArrayLike,
    correct_after: ArrayLike,
    false_before: ArrayLike,
    false_after: ArrayLike,
    compare: Compare = "log-probability",
) -> dict[str, float]:
    """RFF, RNF, CPC, FPC, AFF and ANF of one prompt, from the answers kept; NaN where a list is empty."""
    if not (np.size(correct_after) and np.size(false_after)):
        return dict.fromkeys(("RFF", "RNF", "CPC", "FPC", "AFF", "ANF"), float("nan"))
    rff = ranking_forgetting_factor(correct_after, false_after, compare=compare)
    rnf = ranking_noise_factor(correct_after, false_after, compare=compare)
    cpc = probability_change(correct_before, correct_after)
    fpc = probability_change(false_before, false_after)
    return {
        "RFF": rff,
        "RNF": rnf,
        "CPC": cpc,
        "FPC": fpc,
        "AFF": additive_forgetting_factor(rff=rff, cpc=cpc),
        "ANF": additive_noising_factor(rnf=rnf, fpc=fpc),
    }


def _vector(values: ArrayLike) -> NDArray[np.float64]:
    return np.asarray(values, dtype=np.float64).reshape(-1)


def _weight(log_probability: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sigmoid of the probability: 0.5 for an impossible answer, 0.73 for a certain one."""
    return expit(np.exp(log_probability))
