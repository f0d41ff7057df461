"""PEAK metrics of one record: efficacy, generalisation, locality and additivity.

A record's scores before and after an edit go in, one dictionary of numbers comes out. A metric is
NaN where it is undefined for a record (no paraphrase, every prompt skipped), so that a mean can
state how many records stand behind it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from helpers.peak.additivity import Compare, Kept, additivity, keep_answers

LocalityFilter = Literal["none", "held_before"]
LocalityAnswer = Literal["own", "first"]
Compat = Literal["authors"]
Scores = NDArray[np.float64]

SETTINGS = ("hard", "random")
FACTORS = ("RFF", "RNF", "CPC", "FPC", "AFF", "ANF")
SHARES = ("ES", "GS", "LS", "LS_authors", "LS_unfiltered")  # of a record's prompts, often few
METRICS = (
    *(*SHARES, "EM", "GM", "LM"),
    *(f"{factor}_{setting}" for setting in SETTINGS for factor in FACTORS),
)

PROBABILITIES = tuple(
    f"{name}_{moment}"
    for moment in ("before", "after")
    for name in ("correct", "hard", "random", "target")
)


@dataclass(frozen=True)
class PromptScores:
    """Log-probabilities of one prompt's answers under one model.

    Attributes:
        target: of the answer to append.
        correct: of the original correct answers, shape (N,).
        hard: of the hard false answers, shape (M,).
        random: of the random false answers, shape (R,).
    """

    target: float
    correct: Scores
    hard: Scores
    random: Scores


@dataclass(frozen=True)
class LocalityScores:
    """Log-probabilities at the locality prompts under one model, each of shape (L,).

    Attributes:
        answer: of each prompt's own original answer.
        target: of the answer to append.
        first: of the first prompt's answer; needed for ``locality_answer="first"`` only.
    """

    answer: Scores
    target: Scores
    first: Scores | None = None


@dataclass(frozen=True)
class RecordScores:
    """Everything one model says about one record."""

    edit: PromptScores
    paraphrases: tuple[PromptScores, ...]
    locality: LocalityScores


def record_metrics(
    before: RecordScores,
    after: RecordScores,
    *,
    hard_share: float = 0.2,
    locality_filter: LocalityFilter = "held_before",
    locality_answer: LocalityAnswer = "own",
    compat: Compat | None = None,
) -> dict[str, float]:
    """All PEAK metrics of one record, as fractions.

    ES, GS: success of the appended answer at the edit prompt and the paraphrases, without prompts of
    which a list is empty before the edit, the random one included (``keep_answers``); LS: share of
    locality prompts that keep their answer above the appended one (PEAK, Section 3.2);
    LS_unfiltered: the same over all locality prompts; LS_authors: as their code computes it, with
    both locality choices below (NaN without scores of the first answer). EM, GM, LM: the
    differences of probability behind ES, GS and LS. RFF to ANF: PEAK, Equations 1-6, against the
    hard and the random false answers, averaged over the edit prompt and the paraphrases (Section 7.2).

    Args:
        before: scores of the unedited model; they decide which answers count.
        after: scores of the edited model. Passing ``before`` again gives the unedited model's.
        hard_share: see ``keep_answers``.
        locality_filter: ``"none"`` is the paper's text; ``"held_before"`` (the authors' code)
            counts only prompts whose answer was above the appended one before the edit.
        locality_answer: each prompt's ``"own"`` answer, or the ``"first"`` prompt's for all
            (a slip in the authors' code).
        compat: ``"authors"`` reproduces their code bug for bug: both locality choices above,
            equal pre-edit probabilities collapse to the first, rankings by sigmoid(P), and no
            additivity for a record whose last prompt is skipped.

    Raises:
        ValueError: a NaN score, lists of different length before and after, or missing scores of
            the first locality answer.
    """
    _check(before, after)
    if compat == "authors":
        locality_filter, locality_answer = "held_before", "first"
    prompts_before = (before.edit, *before.paraphrases)
    prompts_after = (after.edit, *after.paraphrases)
    kept = [_keep(prompt, hard_share, compat) for prompt in prompts_before]
    margins = [_margins(*pair) for pair in zip(prompts_after, kept, strict=True)]
    kept_locality = _locality(before.locality, after.locality, locality_filter, locality_answer)
    all_locality = _locality(before.locality, after.locality, "none", locality_answer)
    firsts = before.locality.first is not None and after.locality.first is not None
    theirs = _locality(before.locality, after.locality, "held_before", "first") if firsts else []
    metrics = {
        "ES": _mean(success for success, _ in margins[0]),
        "GS": _mean(success for pairs in margins[1:] for success, _ in pairs),
        "LS": _mean(success for success, _ in kept_locality),
        "LS_authors": _mean(success for success, _ in theirs),
        "LS_unfiltered": _mean(success for success, _ in all_locality),
        "EM": _mean(margin for _, margin in margins[0]),
        "GM": _mean(margin for pairs in margins[1:] for _, margin in pairs),
        "LM": _mean(margin for _, margin in kept_locality),
    }
    drop_record = compat == "authors" and not kept[-1].usable
    triples = [] if drop_record else list(zip(prompts_before, prompts_after, kept, strict=True))
    for setting in SETTINGS:
        metrics |= _additivity(triples, setting, "weight" if compat else "log-probability")
    return metrics


def record_probabilities(
    before: RecordScores, after: RecordScores, *, hard_share: float = 0.2
) -> dict[str, float]:
    """Mean probability of each list's kept answers before and after (PEAK, Figure 2).

    Keys are ``PROBABILITIES``; averaged over answers, then over the prompts not skipped.
    """
    _check(before, after)
    kept = [_keep(prompt, hard_share, None) for prompt in (before.edit, *before.paraphrases)]
    means = {}
    for moment, record in (("before", before), ("after", after)):
        prompts = [
            (prompt, keep)
            for prompt, keep in zip((record.edit, *record.paraphrases), kept, strict=True)
            if keep.usable
        ]
        for name in ("correct", "hard", "random"):
            means[f"{name}_{moment}"] = _mean(
                np.exp(getattr(prompt, name)[getattr(keep, name)]).mean()
                for prompt, keep in prompts
            )
        means[f"target_{moment}"] = _mean(np.exp(prompt.target) for prompt, _ in prompts)
    return means


def _keep(prompt: PromptScores, hard_share: float, compat: Compat | None) -> Kept:
    lists = (prompt.correct, prompt.hard, prompt.random)
    if compat != "authors":
        return keep_answers(*lists, hard_share=hard_share)
    values = [np.exp(scores) for scores in lists]  # their comparisons, to the last bit
    kept = keep_answers(*values, hard_share=hard_share)
    chosen = (kept.correct, kept.hard, kept.random)
    return Kept(*(_collapse(*pair) for pair in zip(values, chosen, strict=True)))


def _collapse(values: Scores, indices: NDArray[np.intp]) -> NDArray[np.intp]:
    """Each index replaced by the first one that holds an equal value."""
    return np.array([np.argmax(values == values[index]) for index in indices], dtype=np.intp)


def _margins(prompt: PromptScores, kept: Kept) -> list[tuple[bool, float]]:
    """Success and probability margin of the appended answer; nothing for a skipped prompt."""
    if not kept.usable:
        return []
    floor = prompt.correct[kept.correct].min()
    return [(prompt.target > floor, np.exp(prompt.target) - np.exp(floor))]


def _locality(
    before: LocalityScores,
    after: LocalityScores,
    locality_filter: LocalityFilter,
    locality_answer: LocalityAnswer,
) -> list[tuple[bool, float]]:
    """Success and probability margin of the original answer at each prompt that counts."""
    answer_before, answer_after = (
        scores.answer if locality_answer == "own" else scores.first for scores in (before, after)
    )
    if answer_before is None or answer_after is None:
        raise ValueError('locality_answer="first" needs the scores of the first locality answer')
    counts = answer_before > before.target if locality_filter == "held_before" else ...
    success = answer_after > after.target
    margin = np.exp(answer_after) - np.exp(after.target)
    return list(zip(success[counts], margin[counts], strict=True))


def _additivity(
    triples: Sequence[tuple[PromptScores, PromptScores, Kept]], setting: str, compare: Compare
) -> dict[str, float]:
    """Additivity of a record in one setting: the mean over its prompts that are not skipped."""
    prompts = [
        additivity(
            correct_before=before.correct[kept.correct],
            correct_after=after.correct[kept.correct],
            false_before=getattr(before, setting)[getattr(kept, setting)],
            false_after=getattr(after, setting)[getattr(kept, setting)],
            compare=compare,
        )
        for before, after, kept in triples
        if kept.usable
    ]
    return {
        f"{factor}_{setting}": _mean(prompt[factor] for prompt in prompts) for factor in FACTORS
    }


def _mean(values: Iterable[float]) -> float:
    """Mean, NaN when there is nothing to average."""
    numbers = np.fromiter(values, dtype=np.float64)
    return float(np.add.reduce(numbers) / len(numbers)) if len(numbers) else float("nan")


def _check(before: RecordScores, after: RecordScores) -> None:
    pairs = list(zip(_arrays(before), _arrays(after), strict=False))
    if len(before.paraphrases) != len(after.paraphrases) or any(
        len(one) != len(other) for one, other in pairs
    ):
        raise ValueError("the scores before and after the edit are of different answers")
    if np.isnan(np.concatenate([values for pair in pairs for values in pair])).any():
        raise ValueError(
            "a log-probability is NaN; leave out edits that ended in a non-finite loss"
        )


def _arrays(record: RecordScores) -> list[NDArray]:
    prompts = (record.edit, *record.paraphrases)
    lists = [
        scores for prompt in prompts for scores in (prompt.correct, prompt.hard, prompt.random)
    ]
    targets = np.array([prompt.target for prompt in prompts])
    return [targets, *lists, record.locality.answer, record.locality.target]
