"""Edits of facts of your own: make them, look at what they did in one table, write them for good."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

import numpy as np
import pandas as pd

from helpers.editing import presets
from helpers.editing.app import App
from helpers.editing.build import build_editor
from helpers.editing.presets import GENERIC, Preset, VectorHyperparameters
from helpers.editing.request import RequestError
from helpers.editing.update import Update, write
from helpers.facts.fact import Fact
from helpers.models.language_model import LanguageModel
from helpers.models.tokens import Ids, subject_prompt
from helpers.peak.metrics import additivity, keep_answers, probability_change
from helpers.scoring.answers import Question, score_answers, tokenised
from helpers.scoring.responses import Sampling, response_text, sample_responses, sample_tokens

GREEDY = Sampling(temperature=0, max_new_tokens=12, stop="\n", chat=False)
_FACTORS = ("CPC", "AFF", "ANF")
# Tokens generated after each of a fact's prompts; scores of its answers, the target's first.
_Answered = tuple[list[Ids], pd.DataFrame]


@dataclass(frozen=True)
class EditedFacts:
    """Facts, their updates (one each, or one for all) and what these did (``edit_facts``: the table)."""

    language_model: LanguageModel
    facts: tuple[Fact, ...]
    updates: tuple[Update, ...]
    table: pd.DataFrame
    _written: list[Update] = field(default_factory=list, init=False, repr=False, compare=False)

    def generate(self, prompts: Sequence[str], *, fact: int = 0) -> list[str]:
        """Greedy continuations under one fact's edit, in its chat template; once written, under all."""
        if not 0 <= fact < len(self.facts):
            raise RequestError(f"no fact {fact}: there are {len(self.facts)}, counted from 0")
        owner = -1 if self._written else 0 if len(self.updates) == 1 else fact
        greedy = replace(GREEDY, chat=self.facts[fact].chat)
        asked = (self.language_model, prompts, self.updates, [owner] * len(prompts))
        return [text for (text,) in sample_responses(*asked, n=1, sampling=greedy)]

    def write(self) -> LanguageModel:
        """Add all updates to the model's weights for good, and hand the model back.

        Independent edits are made without regard to one another: edit many facts ``together`` before.
        A second call changes nothing, and warns.
        """
        if self._written:
            warnings.warn("these edits are in the weights already; nothing is added", stacklevel=2)
            return self.language_model
        for update in self.updates:
            write(self.language_model, update)
        self._written.extend(self.updates)
        return self.language_model


def edit_facts(
    language_model: LanguageModel,
    facts: Sequence[Fact],
    *,
    editor: str = "rome",
    app: App | bool | None = None,
    preset: Preset | None = None,
    together: bool = False,
    corpus: str = "self",
    seed: int = 0,
) -> EditedFacts:
    """Edit each fact from the unedited model, all in one pass, and look at what became of it.

    Args:
        editor: an editor's name, such as ``rome``, ``memit``, ``ft-m``.
        app: the APP objectives, for facts with ``correct`` or ``false`` answers; True takes the
            preset's coefficients.
        preset: see ``build_editor``; None takes what the model's file recommends.
        together: one update that makes all edits, instead of one each.
        corpus: text behind the second moments (``helpers.editing.corpus``).

    Returns:
        The edits and a table with one row a fact, without columns that no fact asks for:

        - ``generated before``, ``generated after``: the greedy continuation of the prompt;
        - ``outcome``: *known before* where the unedited model's begins with the target's tokens; else
          *written* where the edited model's does, *not written*, or why the edit was given up;
        - ``P before``, ``P after``: probability of the whole target, the product over its tokens;
        - ``efficacy``: 1 where the target is generated after the edit, else 0 (reliability of Yao et
          al. 2023), NaN where it was known; ``generality``: the share of paraphrases with 1;
        - ``locality``: the share of the unedited model's next 12 tokens that the edited model generates
          before it first departs from them, averaged over the locality prompts;
        - ``CPC``: change of the correct answers' probability (PEAK, equation 3); ``AFF``, ``ANF`` (5, 6)
          where false answers are given as well, on those that the filter of Section 5.1 keeps;
        - ``warning``: what is odd about the edit.
    """
    if isinstance(facts, Fact) or not facts or not all(isinstance(fact, Fact) for fact in facts):
        raise RequestError("give a list of facts: edit_facts(model, [Fact(subject, …)])")
    chosen = preset if preset is not None else presets.default_preset(editor, language_model.name)
    read = [fact.as_read(language_model) for fact in facts]
    targets = [_targets(language_model, fact, app=bool(app)) for fact in read]
    remarks = [_remark(language_model, fact, editor, chosen) for fact in read]
    for remark in filter(None, remarks):
        warnings.warn(remark, stacklevel=2)
    how: dict[str, Any] = {"preset": chosen, "app": app, "corpus": corpus, "seed": seed}
    made = build_editor(editor, language_model, **how, progress=True)
    requests = [fact.request for fact in read]
    updates = [made.edit_jointly(requests)] if together else made.edit(requests)
    owners = [0 if together else number for number in range(len(facts))]
    count = max(GREEDY.max_new_tokens, *(len(ids) for group in targets for ids in group))
    both = [-1] * len(facts), owners
    answered = (_answered(language_model, read, updates, each, count) for each in both)
    diagnostics = [updates[owner].diagnostics for owner in owners]
    parts = zip(facts, targets, *answered, diagnostics, remarks, strict=True)
    table = pd.DataFrame([_row(language_model, *each) for each in parts])
    empty = [n for n in ("generality", "locality", *_FACTORS) if table[n].isna().all()]
    table = table.drop(columns=[*empty, *([] if table["warning"].any() else ["warning"])])
    words = chosen if isinstance(chosen, str) else "own hyperparameters"
    words += " (untuned)" * (chosen == GENERIC)
    caption = (f"{editor}, {words}", f"{len(facts)} facts", language_model.description)
    table.attrs["caption"] = ", ".join(caption)
    return EditedFacts(language_model, tuple(facts), tuple(updates), table)


def _targets(language_model: LanguageModel, fact: Fact, *, app: bool) -> list[Ids]:
    """The target's tokens after each prompt; whatever cannot be edited or scored is refused."""
    if app and not (fact.correct or fact.false):
        raise RequestError(
            f"{fact.request.text!r}: APP protects correct and false answers, and this fact has none;"
            " give it `correct` or `false`, or leave APP out"
        )
    with fact.request.named():
        questions = [Question(prompt, (fact.target,)) for prompt in fact.prompts]
        _, *asked = tokenised(language_model, [_question(fact), *questions])
    return [target for _, (target,) in asked]


def _remark(language_model: LanguageModel, fact: Fact, editor: str, preset: Preset) -> str:
    """A warning where an editor changes the state of a text's first token."""
    found = presets.base_hyperparameters(editor, language_model.name, preset)
    with fact.request.named():
        place = subject_prompt(language_model, fact.prompt, fact.subject).subject_last
    if place or not isinstance(found, VectorHyperparameters):
        return ""
    return (
        f"{fact.request.text!r}: the subject is the text's first token, whose state holds no fact, so"
        f" {editor} mostly fails; put a word before it, such as 'The country {{}} …'"
    )


def _question(fact: Fact) -> Question:
    return Question(fact.prompts[0], (fact.target, *fact.correct, *fact.false))


def _answered(
    language_model: LanguageModel,
    facts: Sequence[Fact],
    updates: Sequence[Update],
    owners: Sequence[int],
    count: int,
) -> list[_Answered]:
    """Each fact's answers: the ``count`` most probable tokens, fewer where the text ends, and scores."""
    prompts = [prompt for fact in facts for prompt in fact.prompts]
    under = [owner for fact, owner in zip(facts, owners, strict=True) for _ in fact.prompts]
    greedy = replace(GREEDY, max_new_tokens=count, stop=None)
    drawn = iter(sample_tokens(language_model, prompts, updates, under, greedy))
    scores = score_answers(language_model, [_question(fact) for fact in facts], updates, owners)
    parts = [part for _, part in scores.groupby("question", sort=True)]
    return [([next(drawn)[0] for _ in f.prompts], p) for f, p in zip(facts, parts, strict=True)]


def _row(
    language_model: LanguageModel,
    fact: Fact,
    targets: Sequence[Ids],
    before: _Answered,
    after: _Answered,
    diagnostics: Mapping[str, Any],
    remark: str,
) -> dict[str, object]:
    (own, plain), (now, edited) = before, after
    wordings = 1 + len(fact.paraphrases)
    given = [ids[: len(target)] == target for ids, target in zip(now, targets, strict=True)]
    known = own[0][: len(targets[0])] == targets[0]
    outcome = "known before" if known else "written" if given[0] else "not written"
    if failure := diagnostics.get("failure"):
        outcome = f"given up: {failure}"
    starts = (texts[0][: GREEDY.max_new_tokens] for texts in (own, now))
    shown = [response_text(language_model, start, GREEDY) for start in starts]
    odd = [remark]
    if diagnostics.get("exploding"):
        largest = max(diagnostics["relative_norm"].values())
        odd.append(f"the update is {largest:.1f} times as large as the weights")
    if same := diagnostics.get("same_as"):
        odd.append(f"PRUNE restrained nothing; this is the update of {same}")
    return {
        "fact": fact.request.text,
        "target": fact.target,
        "outcome": outcome,
        "generated before": shown[0],
        "generated after": shown[1],
        "P before": float(np.exp(plain["sum"].iloc[0])),
        "P after": float(np.exp(edited["sum"].iloc[0])),
        "efficacy": float("nan") if known else float(given[0]),
        "generality": pd.Series(given[1:wordings], dtype=float).mean(),
        "locality": pd.Series([*map(_kept, own[wordings:], now[wordings:])], dtype=float).mean(),
        **_additivity(fact, plain["mean"].to_numpy()[1:], edited["mean"].to_numpy()[1:]),
        "warning": "; ".join(filter(None, odd)),
    }


def _additivity(fact: Fact, before: np.ndarray, after: np.ndarray) -> dict[str, float]:
    """CPC, AFF and ANF of a fact's lists; NaN where they are not given or nothing is kept."""
    many, found = len(fact.correct), dict.fromkeys(_FACTORS, float("nan"))
    if many and not fact.false:
        return found | {"CPC": probability_change(before[:many], after[:many])}
    kept = keep_answers(before[:many], before[many:], before[many:])
    if kept.usable:
        found = additivity(
            correct_before=before[:many][kept.correct],
            correct_after=after[:many][kept.correct],
            false_before=before[many:][kept.hard],
            false_after=after[many:][kept.hard],
        )
    return {name: found[name] for name in _FACTORS}


def _kept(before: Ids, after: Ids) -> float:
    """The share of a continuation, its end among it, that is generated before another one departs."""
    one, two = ((*ids, -1)[: GREEDY.max_new_tokens] for ids in (before, after))
    same = takewhile(bool, (a == b for a, b in zip(one, two, strict=False)))
    return sum(same) / len(one)
