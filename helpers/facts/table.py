"""The table of edited facts: the model's own answers, and how probable the given ones are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

import numpy as np
import pandas as pd

from helpers.editing.update import Update
from helpers.facts.fact import Fact
from helpers.models.language_model import LanguageModel
from helpers.peak.additivity import additivity, keep_answers, probability_change
from helpers.scoring.answers import Question, score_answers, tokenised
from helpers.scoring.responses import Sampling, response_text, sample_tokens

Ids = tuple[int, ...]
GREEDY = Sampling(temperature=0, max_new_tokens=12, stop="\n", chat=False)
_FACTORS = ("CPC", "AFF", "ANF")
_OPTIONAL = ("generality", "locality", *_FACTORS)


def facts_table(
    language_model: LanguageModel,
    facts: Sequence[Fact],
    updates: Sequence[Update],
    remarks: Sequence[str],
) -> pd.DataFrame:
    """The table of ``edit_facts``: the unedited and the edited model answer the same questions.

    Args:
        language_model: the model.
        facts: the facts.
        updates: one a fact, or one for all.
        remarks: of each fact, what its warning begins with; may be empty.
    """
    read = [fact.as_read(language_model) for fact in facts]
    owners = [0 if len(updates) == 1 else number for number in range(len(facts))]
    unedited = [-1] * len(facts)
    targets = [_targets(language_model, fact) for fact in read]
    count = max(GREEDY.max_new_tokens, *(len(ids) for group in targets for ids in group))
    columns = (
        *(facts, targets, remarks, [updates[owner].diagnostics for owner in owners]),
        *(_answered(language_model, read, updates, each, count) for each in (unedited, owners)),
        *(_scores(language_model, read, updates, each) for each in (unedited, owners)),
    )
    rows = [_row(language_model, *parts) for parts in zip(*columns, strict=True)]
    table = pd.DataFrame(rows)
    unasked = [name for name in _OPTIONAL if table[name].isna().all()]
    return table.drop(columns=[*unasked, *([] if table["warning"].any() else ["warning"])])


def _row(
    language_model: LanguageModel,
    fact: Fact,
    targets: Sequence[Ids],
    remark: str,
    diagnostics: Mapping[str, Any],
    before: Sequence[Ids],
    after: Sequence[Ids],
    plain: pd.DataFrame,
    edited: pd.DataFrame,
) -> dict[str, object]:
    """A fact's row: tokens generated after each of its prompts, and scores of its answers."""
    given = [own[: len(ids)] == ids for own, ids in zip(after, targets, strict=False)]
    known = before[0][: len(targets[0])] == targets[0]
    outcome = "known before" if known else "written" if given[0] else "not written"
    shown, length = {}, GREEDY.max_new_tokens
    for when, tokens in (("before", before[0]), ("after", after[0])):
        shown[f"generated {when}"] = response_text(language_model, tokens[:length], GREEDY)
    kept = [_kept(*pair) for pair in zip(before, after, strict=True)][len(targets) :]
    failure = diagnostics.get("failure")
    return {
        "fact": fact.request.text,
        "target": fact.target,
        "outcome": f"given up: {failure}" if failure else outcome,
        **shown,
        "P before": float(np.exp(plain["sum"].iloc[0])),
        "P after": float(np.exp(edited["sum"].iloc[0])),
        "efficacy": float("nan") if known else float(given[0]),
        "generality": _mean(given[1:]),
        "locality": _mean(kept),
        **_additivity(fact, plain["mean"].to_numpy()[1:], edited["mean"].to_numpy()[1:]),
        "warning": "; ".join(filter(None, (remark, *_warnings(diagnostics)))),
    }


def _warnings(diagnostics: Mapping[str, Any]) -> Iterator[str]:
    """What the diagnostics of an edit report beyond a failure."""
    if diagnostics.get("exploding"):
        largest = max(diagnostics["relative_norm"].values())
        yield f"the update is {largest:.1f} times as large as the weights"
    if same := diagnostics.get("same_as"):
        yield f"PRUNE restrained nothing; this is the update of {same}"


def _additivity(fact: Fact, before: np.ndarray, after: np.ndarray) -> dict[str, float]:
    """CPC, AFF and ANF of a fact's lists; NaN where they are not given or nothing is kept."""
    many = len(fact.correct)
    none = dict.fromkeys(_FACTORS, float("nan"))
    if many and not fact.false:
        return none | {"CPC": probability_change(before[:many], after[:many])}
    kept = keep_answers(before[:many], before[many:], before[many:])
    found = additivity(
        correct_before=before[:many][kept.correct],
        correct_after=after[:many][kept.correct],
        false_before=before[many:][kept.hard],
        false_after=after[many:][kept.hard],
    )
    return {name: found[name] for name in _FACTORS}


def _targets(language_model: LanguageModel, fact: Fact) -> list[Ids]:
    """The target's tokens after the prompt and after each paraphrase."""
    wordings = fact.prompts[: 1 + len(fact.paraphrases)]
    asked = tokenised(language_model, [Question(text, (fact.target,)) for text in wordings])
    return [target for _, (target,) in asked]


def _answered(
    language_model: LanguageModel,
    facts: Sequence[Fact],
    updates: Sequence[Update],
    owners: Sequence[int],
    count: int,
) -> list[list[Ids]]:
    """The ``count`` most probable tokens after each fact's prompts, fewer where the text ends."""
    flat = [prompt for fact in facts for prompt in fact.prompts]
    under = [owner for fact, owner in zip(facts, owners, strict=True) for _ in fact.prompts]
    greedy = replace(GREEDY, max_new_tokens=count, stop=None)
    drawn = iter(sample_tokens(language_model, flat, updates, under, greedy))
    return [[next(drawn)[0] for _ in fact.prompts] for fact in facts]


def question_of(fact: Fact) -> Question:
    """The fact's prompt with its target and all other answers."""
    return Question(fact.prompts[0], (fact.target, *fact.correct, *fact.false))


def _scores(
    language_model: LanguageModel,
    facts: Sequence[Fact],
    updates: Sequence[Update],
    owners: Sequence[int],
) -> list[pd.DataFrame]:
    """Log-probabilities of each fact's answers, the target's first."""
    table = score_answers(language_model, [question_of(f) for f in facts], updates, owners)
    return [part for _, part in table.groupby("question", sort=True)]


def _kept(before: Ids, after: Ids) -> float:
    """The share of a continuation, its end among it, that is generated before another one departs."""
    one, two = ((*ids, -1)[: GREEDY.max_new_tokens] for ids in (before, after))
    same = takewhile(bool, (a == b for a, b in zip(one, two, strict=False)))
    return sum(same) / len(one)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else float("nan")
