"""PEAK's metrics: additivity of one prompt, all metrics of a record, means over records.

Formulas of PEAK, Section 4, the filter of Section 5.1. Scores are natural log-probabilities; rankings
are compared there, where nothing underflows. A metric is NaN where it is undefined for a record (no
paraphrase, every prompt skipped), so that a mean can state how many records are behind it.

Scores of many records are a long table, a row an answer. ``role`` is ``edit``, ``paraphrase`` or
``locality``; ``list`` is ``target``, ``correct``, ``hard`` or ``random``, at locality prompts ``target``,
``locality`` (the prompt's own answer) or ``first`` (the first prompt's answer). ``sum_before`` and
``sum_after`` are sums of an answer's token log-probabilities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from helpers.params import check_one_of, check_range
from helpers.results.statistics import Estimate, Kind, interval

LogProbabilities = NDArray[np.float64]
Measure = Callable[["RecordScores"], Mapping[str, float]]
Lists = Mapping[
    str, LogProbabilities
]  # of a prompt, each of shape (2, n): before and after the edit

KEYS = ["case_id", "role", "prompt_index", "list", "answer_index"]
COLUMNS = [*KEYS, "tokens", "sum_before", "sum_after"]
SETTINGS = ("hard", "random")
MOMENTS = ("before", "after")
LIST_NAMES = ("correct", *SETTINGS, "target")
PROBABILITIES = tuple(f"{name}_{moment}" for moment in MOMENTS for name in LIST_NAMES)
_NOTHING = np.empty((2, 0))


@dataclass(frozen=True)
class Metric:
    """The definition of a number that each record has: what tests, marks and figures need of it."""

    name: str  # of its column, such as "AFF_hard"
    symbol: str  # the paper's, such as "AFF", against whichever false answers
    kind: Kind  # how its values are distributed, which decides its interval and its tests
    direction: Literal["higher", "lower"]  # which is better
    label: str  # in tables, such as "AFF, hard"

    @property
    def higher_is_better(self) -> bool:
        """Whether an edit that is better by this metric has the higher value."""
        return self.direction == "higher"

    @property
    def titled_symbol(self) -> str:
        """The symbol with an arrow to what is better: ``ES ↑``, ``AFF ↓``."""
        return f"{self.symbol} {'↑' if self.higher_is_better else '↓'}"


# An additivity factor's kind, and which value is better.
_FACTORS: dict[str, tuple[Kind, Literal["higher", "lower"]]] = {
    "RFF": ("fraction", "lower"),
    "RNF": ("fraction", "lower"),
    "CPC": ("number", "higher"),
    "FPC": ("number", "lower"),
    "AFF": ("fraction", "lower"),
    "ANF": ("fraction", "lower"),
}
FACTORS = tuple(_FACTORS)
# Shares of a record's prompts, which are often few.
_SHARES = (
    Metric("ES", "ES", "share", "higher", "ES"),
    Metric("GS", "GS", "share", "higher", "GS"),
    Metric("LS", "LS", "share", "higher", "LS"),
    Metric("LS_authors", "LS", "share", "higher", "LS, authors"),
    Metric("LS_unfiltered", "LS", "share", "higher", "LS, unfiltered"),
)
SHARES = tuple(metric.name for metric in _SHARES)


def _registered() -> dict[str, Metric]:
    """Every metric by name: the shares, then the factors against hard and against random answers."""
    metric_by_name = {metric.name: metric for metric in _SHARES}
    for setting in SETTINGS:
        for symbol, (kind, direction) in _FACTORS.items():
            name = f"{symbol}_{setting}"
            metric_by_name[name] = Metric(name, symbol, kind, direction, f"{symbol}, {setting}")
    return metric_by_name


METRICS = _registered()


class Kept(NamedTuple):
    """Indices of the answers that count at one prompt, ascending."""

    correct: NDArray[np.intp]
    hard: NDArray[np.intp]
    random: NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class AnswerFilter:
    """Which answers count at a prompt: those that the unedited model ranks as it should."""

    rule: str = "rank"  # the authors' code; or "threshold", the paper's text
    hard_share: float = (
        0.2  # rank: unknown when this share of the hard false answers is more probable
    )
    threshold: float = 1e-3  # threshold: unknown when less probable; the paper states no value

    def __post_init__(self) -> None:
        check_one_of("rule", self.rule, ("rank", "threshold"))
        check_range("hard_share", self.hard_share, 0, 1)
        check_range("threshold", self.threshold, 0, 1)

    def __str__(self) -> str:
        if self.rule == "threshold":
            return f"threshold (P at least {self.threshold:g})"
        return f"rank (below {self.hard_share:g} of the hard false answers)"

    def keep(self, correct: ArrayLike, hard: ArrayLike, random: ArrayLike) -> Kept:
        """``keep_answers`` of the unedited model's log-probabilities, by this rule."""
        if self.rule == "rank":
            return keep_answers(correct, hard, random, hard_share=self.hard_share)
        with np.errstate(divide="ignore"):  # at a threshold of 0 every answer is known
            lowest_score = float(np.log(self.threshold))
        return keep_answers(correct, hard, random, threshold=lowest_score)

    def counted(self, prompt: Lists) -> Kept:
        """The answers that count at a prompt, by the scores before the edit; a list may be missing."""
        return self.keep(*(prompt.get(name, _NOTHING)[0] for name in ("correct", *SETTINGS)))


DEFAULT_FILTER = AnswerFilter()


@dataclass(frozen=True)
class RecordScores:
    """Scores of one record before and after its edit."""

    edit: Lists  # target (one answer), correct, hard and random
    paraphrases: Sequence[Lists]
    locality: Lists  # locality, target and perhaps first, each of shape (2, number of prompts)


def keep_answers(
    correct: ArrayLike,
    hard: ArrayLike,
    random: ArrayLike,
    *,
    hard_share: float = 0.2,
    threshold: float | None = None,
) -> Kept:
    """Choose the answers the unedited model ranks as it should (PEAK, Section 5.1).

    A correct answer is dropped when at least ``hard_share`` of the hard false answers are strictly
    more probable (the authors' code), or when it is below a ``threshold`` (the paper's text, without a
    value). Then a false answer is dropped when it is at least as probable as the least probable
    correct answer kept. Scores are of the unedited model, each of shape (n,); any increasing function
    of the probability serves.
    """
    correct = _vector(correct)
    hard = _vector(hard)
    random = _vector(random)
    if threshold is None:
        hard_above = (hard[None, :] > correct[:, None]).sum(axis=1)
        is_known = hard_above / max(len(hard), 1) < hard_share
    else:
        is_known = correct >= threshold
    kept_indices = np.flatnonzero(is_known)
    least_correct = correct[kept_indices].min() if len(kept_indices) else -np.inf
    kept_hard = np.flatnonzero(hard < least_correct)
    kept_random = np.flatnonzero(random < least_correct)
    return Kept(kept_indices, kept_hard, kept_random)


def ranking_forgetting_factor(correct: ArrayLike, false: ArrayLike) -> float:
    """RFF: weighted share of correct answers below the most probable false one (Equation 1).

    Both are log-probabilities after the edit, each of shape (n,).
    """
    correct = _vector(correct)
    false = _vector(false)
    weights = expit(np.exp(correct))  # 0.5 for an impossible answer, 0.73 for a certain one
    return float(weights[correct < false.max()].sum() / weights.sum())


def ranking_noise_factor(correct: ArrayLike, false: ArrayLike) -> float:
    """RNF: weighted share of false answers above the least probable correct one (Equation 2)."""
    correct = _vector(correct)
    false = _vector(false)
    weights = expit(np.exp(false))
    return float(weights[false > correct.min()].sum() / weights.sum())


def probability_change(before: ArrayLike, after: ArrayLike) -> float:
    """CPC or FPC: mean probability after editing over the mean before (Equations 3 and 4)."""
    after_sum = np.logaddexp.reduce(_vector(after))
    before_sum = np.logaddexp.reduce(_vector(before))
    with np.errstate(over="ignore"):  # a ratio beyond 1e308 is reported as infinite
        return float(np.exp(after_sum - before_sum))


def additivity(correct: LogProbabilities, false: LogProbabilities) -> dict[str, float]:
    """RFF, RNF, CPC, FPC, AFF and ANF of one prompt; NaN where a list is empty.

    Both are log-probabilities of the answers kept, of shape (2, n): before and after the edit.
    AFF = 1 - (1 - RFF) min(1, CPC) is 0 where nothing is forgotten (Equation 5), and
    ANF = 1 - (1 - RNF) / max(1, FPC) where no noise is added (Equation 6).
    """
    if not (correct.size and false.size):
        return dict.fromkeys(FACTORS, float("nan"))
    rff = ranking_forgetting_factor(correct[1], false[1])
    rnf = ranking_noise_factor(correct[1], false[1])
    cpc = probability_change(*correct)
    fpc = probability_change(*false)
    aff = 1 - (1 - rff) * min(1.0, cpc)
    anf = 1 - (1 - rnf) / max(1.0, fpc)
    return dict(zip(FACTORS, (rff, rnf, cpc, fpc, aff, anf), strict=True))


def record_metrics(
    record: RecordScores, answer_filter: AnswerFilter = DEFAULT_FILTER
) -> dict[str, float]:
    """All PEAK metrics of one record, as fractions.

    ES, GS: success of the appended answer at the edit prompt and the paraphrases, without prompts of
    which a list is empty before the edit (``answer_filter``). LS: share of locality prompts that keep
    their own answer above the appended one, of those where it was above before (Section 3.2).
    LS_unfiltered: the same of all locality prompts, the paper's text. LS_authors: as their code
    computes it, each prompt compared with the *first* prompt's answer. RFF to ANF: Equations 1–6,
    averaged over the edit prompt and the paraphrases (Section 7.2).
    """
    edit, *paraphrases = _kept_prompts(record, answer_filter)
    prompts = list(filter(None, [edit, *paraphrases]))
    metrics = {
        "ES": _success([edit]),
        "GS": _success(paraphrases),
        "LS": _locality(record.locality, "locality"),
        "LS_authors": _locality(record.locality, "first"),
        "LS_unfiltered": _locality(record.locality, "locality", held_before=False),
    }
    for setting in SETTINGS:
        factors_of_prompts = [additivity(prompt["correct"], prompt[setting]) for prompt in prompts]
        for factor in FACTORS:
            metrics[f"{factor}_{setting}"] = _mean_or_nan(
                factors_of_prompt[factor] for factors_of_prompt in factors_of_prompts
            )
    return metrics


def record_probabilities(
    record: RecordScores, answer_filter: AnswerFilter = DEFAULT_FILTER
) -> dict[str, float]:
    """Mean probability of each list's kept answers, over answers, then over prompts (Figure 2)."""
    prompts = list(filter(None, _kept_prompts(record, answer_filter)))
    return {
        f"{list_name}_{moment}": _mean_or_nan(
            np.exp(prompt[list_name][moment_index]).mean() for prompt in prompts
        )
        for moment_index, moment in enumerate(MOMENTS)
        for list_name in LIST_NAMES
    }


def records_of(scores_table: pd.DataFrame) -> Iterator[tuple[int, RecordScores]]:
    """Each record's scores from a long table, in order of case_id.

    P = exp(sum / tokens), the geometric mean over an answer's tokens, as in the authors' code.
    """
    if (is_undefined := scores_table[["sum_before", "sum_after"]].isna().any(axis=1)).any():
        raise ValueError(
            "log-probabilities are NaN in the score table, case_id"
            f" {sorted(set(scores_table.loc[is_undefined, 'case_id']))}; omit those edits"
        )
    if scores_table.duplicated(KEYS).any():
        raise ValueError("the score table holds an answer twice; pass one method's at a time")
    ordered_rows = scores_table.sort_values(KEYS)
    log_sums = ordered_rows[["sum_before", "sum_after"]].to_numpy(float)
    scores = log_sums.T / ordered_rows["tokens"].to_numpy(float)
    # A list's answers are next to each other: their scores are a slice, without a look at each row.
    prompt_labels = ordered_rows[KEYS[:-1]]
    list_starts = np.flatnonzero((prompt_labels != prompt_labels.shift()).any(axis=1))
    list_ends = np.append(list_starts, len(ordered_rows))[1:]
    list_places = prompt_labels.iloc[list_starts].itertuples(index=False, name=None)
    list_spans = zip(list_places, list_starts, list_ends, strict=True)
    for case_id, spans_of_record in groupby(list_spans, key=lambda list_span: list_span[0][0]):
        prompts: dict[tuple[str, int], dict[str, LogProbabilities]] = {}
        for (_, role, prompt_index, list_name), list_start, list_end in spans_of_record:
            prompts.setdefault((role, prompt_index), {})[list_name] = scores[:, list_start:list_end]
        locality_prompts = [lists for (role, _), lists in prompts.items() if role == "locality"]
        locality_lists = ("locality", "target", "first")
        locality = {
            list_name: np.hstack([_NOTHING, *(lists[list_name] for lists in locality_prompts)])
            for list_name in locality_lists
        }
        paraphrases = [lists for (role, _), lists in prompts.items() if role == "paraphrase"]
        yield case_id, RecordScores(prompts["edit", 0], paraphrases, locality)


def metrics_table(
    scores_table: pd.DataFrame, answer_filter: AnswerFilter = DEFAULT_FILTER
) -> pd.DataFrame:
    """``record_metrics`` of a long table: one row per case_id (and ``relation``, if it has that column)."""
    return _by_record(
        partial(record_metrics, answer_filter=answer_filter), scores_table, list(METRICS)
    )


def method_metrics(
    scores: Mapping[str, pd.DataFrame], answer_filter: AnswerFilter = DEFAULT_FILTER
) -> dict[str, pd.DataFrame]:
    """``metrics_table`` of each method's scores."""
    return {
        method: metrics_table(scores_of_method, answer_filter)
        for method, scores_of_method in scores.items()
    }


def probabilities_table(
    scores_table: pd.DataFrame, answer_filter: AnswerFilter = DEFAULT_FILTER
) -> pd.DataFrame:
    """``record_probabilities`` of every record of a long table: one row per case_id."""
    measure = partial(record_probabilities, answer_filter=answer_filter)
    return _by_record(measure, scores_table, PROBABILITIES)


def table_by_record(
    measures_by_case: Mapping[int, Mapping[Any, float]],
    scores_table: pd.DataFrame,
    columns: Sequence[Any],
) -> pd.DataFrame:
    """Each record's measures as a table: one row per case_id (and ``relation``, if the scores have it)."""
    by_case = pd.DataFrame.from_dict(
        dict(measures_by_case), orient="index", columns=list(columns), dtype=float
    )
    by_case = by_case.rename_axis("case_id")  # with its columns where every edit was given up
    if "relation" not in scores_table:
        return by_case
    relations = scores_table.groupby("case_id")["relation"].first()
    return by_case.set_index(relations.reindex(by_case.index), append=True)


def kind_of_metric(name: str) -> Kind:
    """A registered metric's kind; a number, what is made of several metrics or is another room's."""
    return METRICS[name].kind if name in METRICS else "number"


def metric_interval(metric: str, values: ArrayLike) -> Estimate:
    """Mean over records of one metric with the 95 % interval of its kind."""
    return interval(values, kind_of_metric(metric))


def summarise(by_record: pd.DataFrame) -> pd.DataFrame:
    """Mean over records of each column with its interval: index metric; mean, low, high, n.

    A record for which a metric is undefined (NaN) is omitted from its mean and its n.
    """
    estimates_by_metric = {
        metric: vars(metric_interval(metric, by_record[metric])) for metric in map(str, by_record)
    }
    summary = pd.DataFrame.from_dict(estimates_by_metric, orient="index")
    return summary.astype({"n": int}).rename_axis("metric")


def _kept_prompts(
    record: RecordScores, answer_filter: AnswerFilter
) -> list[dict[str, LogProbabilities] | None]:
    """The edit prompt and the paraphrases with the answers that count, None for one that is skipped."""
    prompts: list[dict[str, LogProbabilities] | None] = []
    for prompt in (record.edit, *record.paraphrases):
        answer_indices = answer_filter.counted(prompt)
        kept_lists = {
            list_name: prompt.get(list_name, _NOTHING)[:, getattr(answer_indices, list_name)]
            for list_name in ("correct", *SETTINGS)
        }
        is_usable = all(map(len, answer_indices))
        prompts.append({**kept_lists, "target": prompt["target"]} if is_usable else None)
    return prompts


def _success(prompts: Sequence[Lists | None]) -> float:
    """Share of prompts at which the appended answer is above the least probable correct one."""
    return _mean_or_nan(
        prompt["target"][1, 0] > prompt["correct"][1].min() for prompt in prompts if prompt
    )


def _locality(scores: Lists, answer: str, *, held_before: bool = True) -> float:
    before, after = scores[answer] > scores["target"]
    return _mean_or_nan(after[before] if held_before else after)


def _by_record(
    measure: Measure, scores_table: pd.DataFrame, columns: Sequence[str]
) -> pd.DataFrame:
    measures_by_case = {case_id: measure(scores) for case_id, scores in records_of(scores_table)}
    return table_by_record(measures_by_case, scores_table, columns)


def _mean_or_nan(values: Iterable[float]) -> float:
    numbers = np.fromiter(values, dtype=np.float64)
    return float(numbers.mean()) if len(numbers) else float("nan")


def _vector(values: ArrayLike) -> LogProbabilities:
    return np.asarray(values, dtype=np.float64).reshape(-1)
