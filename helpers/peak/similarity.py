"""Does damage follow similarity? A correct answer's loss against how near its unembedding is to o*'s.

An edit raises the logit of o*. Answers whose rows of the unembedding matrix point the same way are raised
with it, unless the edit or the softmax lowers them. The *cosine* of a correct answer is that of its vector
and o*'s: the mean, over an answer's tokens, of the unembedding's rows, less the mean row of the vocabulary
(which changes no probability). The *loss* is the fall of its mean log-probability a token, in nats.

How strongly an edit writes differs from record to record and moves all its answers together. Slopes are
therefore within records (a fixed effect for each): of a record's answers, is the loss larger for the nearer
one, given its prior (its log-probability before) and its rank by it? In the *planned* model these three are
the regressors. The *adjusted* one, added after the first results, has the answer's length as well: of a long
answer an edit moves mostly the first tokens, which makes its loss a token small, and the mean of many rows
has a larger cosine with other means. A mixed model would also assume that records' effects are independent of
the regressors, and needs a package that the suite has no other use for. Intervals are of a bootstrap that
draws relations, or records where relations are few.

*figures/data/similarity/<run>* holds the cosines (``helpers.peak.cosines``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from helpers.editing.editors import EDITORS
from helpers.peak.metrics import DEFAULT_FILTER, AnswerFilter
from helpers.peak.tables import scores_of
from helpers.results.archive import Run
from helpers.results.notes import ShownTable, with_power, with_relations
from helpers.results.statistics import (
    LEVEL,
    Estimate,
    Numbers,
    holm,
    mean_interval,
    relation_count_of,
    too_few,
    unit_draws,
)
from helpers.results.text import INCONCLUSIVE, with_interval
from helpers.samples.design import POWER

COSINES = "cosines"  # name of the stored table
EVERY_ANSWER = AnswerFilter(rule="threshold", threshold=0)  # known or not
PLANNED = ("cosine", "prior", "rank")  # regressors: columns of ``answer_losses``
ADJUSTED = (*PLANNED, "token_share")
STEPS = {  # of each regressor, to which a slope belongs
    "cosine": 0.1,
    "prior": 1.0,
    "rank": 1.0,
    "token_share": 1.0,
}
BINS = 5  # of a figure
_ANSWER_COLUMNS = [
    "case_id",
    "relation",
    "answer_index",
    "tokens",
    "sum_before",
    "sum_after",
]


@dataclass(frozen=True)
class Slope:
    """The change of the loss, in nats, over a step of a regressor (``STEPS``), within records."""

    estimate: Estimate
    p_value: float  # NaN where there are too few relations for a test
    error: float  # of the bootstrap

    @property
    def detectable(self) -> float:
        """The smallest slope that a test with this error finds with a power of 80 %."""
        return POWER * self.error

    @property
    def words(self) -> str:
        """Whether losses are larger or smaller there, or ``INCONCLUSIVE``."""
        if not self.p_value < LEVEL:
            return INCONCLUSIVE
        return "more lost" if self.estimate.mean > 0 else "less lost"


def answer_losses(
    scores: pd.DataFrame, cosines: pd.DataFrame, answer_filter: AnswerFilter = DEFAULT_FILTER
) -> pd.DataFrame:
    """Each known correct answer at the edit prompts of one method, a row an answer.

    Args:
        scores: of a method, as ``scores_of`` gives them.
        cosines: of ``cosines.answer_cosines``.
        answer_filter: which answers count as known.

    Returns:
        case_id and relation as index; ``loss`` (nats a token, positive where it became less probable),
        ``cosine``, ``prior`` (nats a token before the edit), ``rank`` (by it, 1 the most probable) and
        ``token_share`` (1 / tokens: what one token weighs in the loss).
        Records with one known answer have no difference within them and are omitted.
    """
    columns = ["loss", *ADJUSTED]
    at_edit_prompt = scores[scores["role"] == "edit"]
    if at_edit_prompt.empty:
        index = pd.MultiIndex.from_arrays([[], []], names=["case_id", "relation"])
        return pd.DataFrame(columns=columns, index=index, dtype=float)
    known_answers = _known_answers(at_edit_prompt[[*_ANSWER_COLUMNS, "list"]], answer_filter)
    answers = known_answers.merge(cosines, on=["case_id", "answer_index"], validate="1:1")
    answers["loss"] = (answers["sum_before"] - answers["sum_after"]) / answers["tokens"]
    answers["prior"] = answers["sum_before"] / answers["tokens"]
    by_record = answers.groupby("case_id")["prior"]
    answers["rank"] = by_record.rank(ascending=False)
    answers["token_share"] = 1 / answers["tokens"]
    several = by_record.transform("size") > 1
    return answers[several].set_index(["case_id", "relation"])[columns].astype(float)


def _known_answers(scores: pd.DataFrame, answer_filter: AnswerFilter) -> pd.DataFrame:
    """The rows of correct answers that the unedited model knows, by the filter of the metrics."""
    ordered = scores.sort_values("answer_index")
    priors = (ordered["sum_before"] / ordered["tokens"]).to_numpy(float)
    rows_of_list = ordered.groupby(["case_id", "list"]).indices
    known_rows = []
    for case_id in np.unique(ordered["case_id"]):
        rows = [
            rows_of_list.get((case_id, name), np.array([], dtype=int))
            for name in ("correct", "hard", "random")
        ]
        kept = answer_filter.keep(*(priors[of_list] for of_list in rows))
        known_rows.append(rows[0][kept.correct])
    return ordered.iloc[np.concatenate(known_rows)][_ANSWER_COLUMNS]


def slopes(answers: pd.DataFrame, regressors: Sequence[str] = ADJUSTED) -> dict[str, Slope]:
    """The slopes of the loss over the regressors together, within records, of ``answer_losses``."""
    draws = _slope_draws(answers, regressors)  # [1 + draws, regressors]
    n = len(answers)
    relation_count = relation_count_of(answers["loss"])
    slopes_of_regressors = {}
    for column, name in enumerate(regressors):
        values = STEPS[name] * draws[:, column]
        low, high = np.percentile(values[1:], [100 * LEVEL / 2, 100 - 100 * LEVEL / 2])
        estimate = Estimate(float(values[0]), float(low), float(high), n)
        beyond = min((values[1:] <= 0).sum(), (values[1:] >= 0).sum())
        p_value = min(1.0, 2 * (1 + int(beyond)) / len(values))
        if too_few(relation_count):
            p_value = float("nan")
        slopes_of_regressors[name] = Slope(estimate, p_value, float(values[1:].std()))
    return slopes_of_regressors


def _slope_draws(answers: pd.DataFrame, regressors: Sequence[str]) -> Numbers:
    """Least squares of deviations from records' means, [1 + draws, regressors]: the sample, then draws.

    The slope over a regressor that does not vary within records is zero.
    """
    deviations = within_records(answers)
    values = deviations[list(regressors)].to_numpy(float)  # [answers, regressors]
    losses = deviations["loss"].to_numpy(float)
    weights = unit_draws(answers["loss"], record_level="case_id")  # [1 + draws, answers]
    size = values.shape[1]
    products = (values[:, :, None] * values[:, None, :]).reshape(-1, size * size)
    squares = (weights @ products).reshape(-1, size, size)
    moments = weights @ (values * losses[:, None])  # [1 + draws, regressors]
    inverses = np.linalg.pinv(squares, hermitian=True)
    return (inverses @ moments[:, :, None])[:, :, 0]


def within_records(answers: pd.DataFrame) -> pd.DataFrame:
    """Every column less its record's mean."""
    return answers - answers.groupby(level="case_id").transform("mean")


def binned_losses(answers: pd.DataFrame, bins: int = BINS) -> pd.DataFrame:
    """Mean losses in bins of the cosine, both adjusted for the record and the other regressors.

    What these predict is taken from both by least squares, and their means are added again: a line through
    the answers then has the slope of ``slopes``. Bins hold equally many answers; ``cosine`` is a bin's mean.
    """
    deviations = within_records(answers)
    others = deviations[[name for name in ADJUSTED if name != "cosine"]].to_numpy(float)
    adjusted = {}
    for name in ("loss", "cosine"):
        values = deviations[name].to_numpy(float)
        fitted = others @ np.linalg.lstsq(others, values, rcond=None)[0]
        adjusted[name] = pd.Series(values - fitted + answers[name].mean(), answers.index)
    bin_of_answer = pd.qcut(adjusted["cosine"].to_numpy(), bins, labels=False)
    rows = []
    for number in range(bins):
        in_bin = bin_of_answer == number
        estimate = mean_interval(adjusted["loss"][in_bin])
        rows.append({"cosine": adjusted["cosine"][in_bin].mean(), **vars(estimate)})
    return pd.DataFrame(rows)


def losses_of_run(
    run: Run, cosines: pd.DataFrame, answer_filter: AnswerFilter = DEFAULT_FILTER
) -> dict[str, pd.DataFrame]:
    """``answer_losses`` of every method that changes weights, of a published run of PEAK or its placebos."""
    losses = {
        method: answer_losses(scores, cosines, answer_filter)
        for method, scores in scores_of(run, only=_edited_weights(run)).items()
    }
    return {method: answers for method, answers in losses.items() if not answers.empty}


def control_losses(
    run: Run,
    cosines: pd.DataFrame,
    answer_filter: AnswerFilter = DEFAULT_FILTER,
    *,
    placebo: Run | None = None,
) -> dict[str, dict[str, pd.DataFrame]]:
    """``losses_of_run`` by what is varied: answers without a token of o*, every answer, another edit."""
    unlike = cosines[~cosines["shares_token"]]
    losses = {
        "answers that share no token with o*": losses_of_run(run, unlike, answer_filter),
        "every correct answer, known or not": losses_of_run(run, cosines, EVERY_ANSWER),
    }
    if placebo:
        losses["under another record's edit"] = losses_of_run(placebo, cosines, answer_filter)
    return losses


def _edited_weights(run: Run) -> list[str]:
    """The methods whose editor optimises a loss of weights, which raises o*'s logit.

    An edit in context or behind a gate has no direction to share, and KN's is not that of o*.
    """
    labels = [editor.label for editor in EDITORS.values() if editor.loss]
    return [name for name in run.tables if name.removesuffix("+APP") in labels]


def slope_table(answers_by_method: Mapping[str, pd.DataFrame]) -> ShownTable:
    """A row a method: how much more, in nats, an answer loses whose cosine with o* is higher by 0.1.

    ``as planned`` is given record, prior and rank, ``given length`` also given the number of tokens. *Holm*
    is the verdict after the correction for all methods of the table.
    """
    models = {"as planned": PLANNED, "given length": ADJUSTED}
    slopes_by_model = {
        title: {
            method: slopes(answers, names)["cosine"]
            for method, answers in answers_by_method.items()
        }
        for title, names in models.items()
    }
    survives_by_model = {
        title: holm([slope.p_value for slope in of_methods.values()]) < LEVEL
        for title, of_methods in slopes_by_model.items()
    }
    rows_of_methods = []
    for number, (method, answers) in enumerate(answers_by_method.items()):
        mean_loss = with_interval(mean_interval(answers["loss"]))
        row_of_method: dict[str, object] = {"method": method, "mean loss": mean_loss}
        for title, of_methods in slopes_by_model.items():
            slope = of_methods[method]
            survives = survives_by_model[title][number]
            row_of_method[title] = with_interval(slope.estimate, signed=True)
            row_of_method[f"{title}, Holm"] = slope.words if survives else INCONCLUSIVE
        row_of_method["answers"] = len(answers)
        row_of_method["records"] = answers.index.get_level_values("case_id").nunique()
        rows_of_methods.append(row_of_method)
    shown = with_power(
        pd.DataFrame(rows_of_methods),
        [slope.detectable for slope in slopes_by_model["given length"].values()],
        [len(answers) for answers in answers_by_method.values()],
        unit=" nats for a cosine of 0.1",
        digits=2,
    )
    return with_relations(shown, [answers["loss"] for answers in answers_by_method.values()])
