"""The table of edited facts: what the model says, and how probable the answers are, before and after."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from helpers.editing.update import Update
from helpers.facts.fact import Fact
from helpers.models.language_model import LanguageModel
from helpers.peak.additivity import additivity, keep_answers, probability_change
from helpers.scoring.answers import Question, score_answers
from helpers.scoring.responses import Sampling, sample_responses

Numbers = NDArray[np.float64]
GREEDY = Sampling(temperature=0, max_new_tokens=12, stop="\n", chat=False)
_FACTORS = ("CPC", "AFF", "ANF")


def facts_table(
    language_model: LanguageModel, facts: Sequence[Fact], updates: Sequence[Update]
) -> pd.DataFrame:
    """The table of ``edit_facts``: the unedited and the edited model answer the same questions."""
    owners = [0 if len(updates) == 1 else number for number in range(len(facts))]
    prompts = [fact.prompts for fact in facts]
    before = _said(language_model, prompts, updates, [-1] * len(facts))
    after = _said(language_model, prompts, updates, owners)
    questions = [_questions(fact, words) for fact, words in zip(facts, before, strict=True)]
    plain = _scores(language_model, questions, updates, [-1] * len(facts))
    edited = _scores(language_model, questions, updates, owners)
    rows = [
        _row(*parts) | {"failure": str(updates[owner].diagnostics.get("failure", ""))}
        for *parts, owner in zip(facts, before, after, plain, edited, owners, strict=True)
    ]
    table = pd.DataFrame(rows)
    unasked = [name for name in ("paraphrases", "locality", *_FACTORS) if table[name].isna().all()]
    return table.drop(columns=[*unasked, *(["failure"] if not table["failure"].any() else [])])


def _questions(fact: Fact, said: Sequence[str]) -> list[Question]:
    """The wordings with their target and what the unedited model said; the first with all answers."""
    wordings = 1 + len(fact.paraphrases)
    pairs = [
        Question(prompt, (fact.target, own or fact.target))  # silence cannot be beaten
        for prompt, own in zip(fact.prompts[:wordings], said, strict=False)
    ]
    first = Question(pairs[0].prompt, (*pairs[0].answers, *fact.correct, *fact.false))
    return [first, *pairs[1:]]


def _row(
    fact: Fact,
    before: Sequence[str],
    after: Sequence[str],
    plain: Sequence[Numbers],
    edited: Sequence[Numbers],
) -> dict[str, object]:
    """A fact's row: what was said at each of its prompts, and scores at each of its wordings."""
    beaten = [float(scores[0] > scores[1]) for scores in edited]
    kept = [float(one == two) for one, two in zip(before, after, strict=True)][len(beaten) :]
    return {
        "fact": fact.request.text,
        "target": fact.target,
        "said before": before[0],
        "said after": after[0],
        "P before": float(np.exp(plain[0][0])),
        "P after": float(np.exp(edited[0][0])),
        "efficacy": beaten[0],
        "paraphrases": _mean(beaten[1:]),
        "locality": _mean(kept),
        **_additivity(fact, plain[0][2:], edited[0][2:]),
    }


def _additivity(fact: Fact, before: Numbers, after: Numbers) -> dict[str, float]:
    """CPC, AFF and ANF of a fact's lists; NaN where they are not given or nothing is kept."""
    many = len(fact.correct)
    none = dict.fromkeys(_FACTORS, float("nan"))
    if many and not fact.false:
        return none | {"CPC": probability_change(before[:many], after[:many])}
    kept = keep_answers(before[:many], before[many:], before[many:])
    if not kept.usable:
        return none
    found = additivity(
        correct_before=before[:many][kept.correct],
        correct_after=after[:many][kept.correct],
        false_before=before[many:][kept.hard],
        false_after=after[many:][kept.hard],
    )
    return {name: found[name] for name in _FACTORS}


def _said(
    language_model: LanguageModel,
    prompts: Sequence[Sequence[str]],
    updates: Sequence[Update],
    owners: Sequence[int],
) -> list[list[str]]:
    """The model's own continuation of each fact's prompts, its first clause."""
    flat = [prompt for group in prompts for prompt in group]
    under = [owner for group, owner in zip(prompts, owners, strict=True) for _ in group]
    drawn = iter(sample_responses(language_model, flat, updates, under, n=1, sampling=GREEDY))
    return [[_first_clause(next(drawn)[0]) for _ in group] for group in prompts]


def _scores(
    language_model: LanguageModel,
    questions: Sequence[Sequence[Question]],
    updates: Sequence[Update],
    owners: Sequence[int],
) -> list[list[Numbers]]:
    """Mean log-probabilities of the answers to each fact's questions."""
    flat = [question for group in questions for question in group]
    under = [owner for group, owner in zip(questions, owners, strict=True) for _ in group]
    table = score_answers(language_model, flat, updates, under)
    means = iter([part["mean"].to_numpy() for _, part in table.groupby("question", sort=True)])
    return [[next(means) for _ in group] for group in questions]


def _first_clause(text: str) -> str:
    for mark in (". ", ", ", "; "):
        text = text.partition(mark)[0]
    return text.rstrip(".,;").strip()


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else float("nan")
