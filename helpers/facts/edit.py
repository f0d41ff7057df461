"""Edits of one's own facts: make them, look at what they did, write them for good."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from helpers.editing.app import App
from helpers.editing.build import build_editor
from helpers.editing.hyperparameters import VectorHyperparameters
from helpers.editing.params_files import GENERIC
from helpers.editing.presets import Preset, base_hyperparameters, default_preset
from helpers.editing.request import RequestError
from helpers.editing.update import Update, check_update, write
from helpers.facts.fact import Fact
from helpers.facts.table import GREEDY, facts_table, question_of
from helpers.models.language_model import LanguageModel
from helpers.models.tokens import subject_prompt
from helpers.scoring.answers import Question, tokenised
from helpers.scoring.responses import Sampling, sample_responses


@dataclass(frozen=True)
class EditedFacts:
    """Facts with their edits, and what these did.

    Attributes:
        language_model: the model, unedited until ``write``.
        facts: the facts, in order.
        updates: one update a fact, or one for all of them where they were edited together.
        table: one row a fact; see ``edit_facts``.
    """

    language_model: LanguageModel
    facts: tuple[Fact, ...]
    updates: tuple[Update, ...]
    table: pd.DataFrame
    _written: list[Update] = field(default_factory=list, init=False, repr=False, compare=False)

    def generate(
        self, prompts: Sequence[str], *, fact: int = 0, sampling: Sampling | None = None
    ) -> list[str]:
        """What the model generates after each prompt under one fact's edit; once written, under all.

        By default greedily, and in the chat template where the fact is.

        Raises:
            RequestError: no such fact.
        """
        if not 0 <= fact < len(self.facts):
            raise RequestError(f"no fact {fact}: there are {len(self.facts)}, counted from 0")
        owner = -1 if self._written else 0 if len(self.updates) == 1 else fact
        drawn = sample_responses(
            self.language_model,
            prompts,
            self.updates,
            [owner] * len(prompts),
            n=1,
            sampling=sampling or replace(GREEDY, chat=self.facts[fact].chat),
        )
        return [texts[0] for texts in drawn]

    def write(self) -> LanguageModel:
        """Add all updates to the model's weights for good, and hand the model back.

        Independent edits are made without regard to one another: edit many facts ``together``
        before they are written. A second call changes nothing, and warns.

        Raises:
            UpdateError: see ``helpers.editing.update.write``; nothing is written then.
        """
        if self._written:
            warnings.warn("these edits are in the weights already; nothing is added", stacklevel=2)
            return self.language_model
        for update in self.updates:
            check_update(self.language_model, update)
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
        language_model: the model; its weights are not touched.
        facts: the facts.
        editor: an editor's name, such as ``rome``, ``memit``, ``ft-m``.
        app: the APP objectives, for facts with ``correct`` or ``false`` answers; True takes the
            preset's coefficients.
        preset: see ``build_editor``; None takes what the model's file recommends.
        together: one update that makes all edits, instead of one each.
        corpus: text behind the second moments.
        seed: of all random choices.

    Returns:
        The edits and a table with one row a fact:

        - ``outcome``: *written* where the edited model's greedy continuation of the prompt begins with
          the target's tokens; *known before* where the unedited model's does; else *not written*, or
          why the edit was given up;
        - ``generated before``, ``generated after``: that continuation, to be read;
        - ``P before``, ``P after``: probability of the whole target, the product over its tokens;
        - ``efficacy``: 1 where the target is generated after the edit, else 0 (reliability of Yao et
          al. 2023); NaN where it was known before;
        - ``generality``: the share of paraphrases after which the target is generated;
        - ``locality``: the share of the unedited model's next 12 tokens that the edited model generates
          before it first departs from them, averaged over the locality prompts; 1 where nothing changed
          (the agreement of tokens in EasyEdit, without the right tokens being given);
        - ``CPC``: change of the correct answers' probability (PEAK, equation 3); ``AFF``, ``ANF`` (5, 6)
          where false answers are given, too, on those that the filter of Section 5.1 keeps;
        - ``warning``: what is odd about an edit that was made.

        Columns that no fact asks for are omitted; NaN where this fact does not.

    Raises:
        RequestError: no facts, something else than facts, or APP for a fact without other answers.
        TokenError: a text that this model cannot read, or no chat template for ``chat``.
        EditorError: see ``build_editor``.
    """
    if isinstance(facts, Fact) or not facts or not all(isinstance(fact, Fact) for fact in facts):
        raise RequestError(
            "give a list of facts: edit_facts(model, [Fact(subject, prompt, target)])"
        )
    chosen = preset if preset is not None else default_preset(editor, language_model.name)
    read = [_checked(language_model, fact, app=bool(app)) for fact in facts]
    remarks = [_remark(language_model, fact, editor, chosen) for fact in read]
    for remark in filter(None, remarks):
        warnings.warn(remark, stacklevel=2)
    options: dict[str, Any] = {"corpus": corpus, "seed": seed, "progress": True}
    made = build_editor(editor, language_model, preset=chosen, app=app, **options)
    requests = [fact.request for fact in read]
    updates = [made.edit_jointly(requests)] if together else made.edit(requests)
    table = facts_table(language_model, facts, updates, remarks)
    table.attrs["caption"] = _caption(language_model, editor, chosen, len(facts))
    return EditedFacts(language_model, tuple(facts), tuple(updates), table)


def _checked(language_model: LanguageModel, fact: Fact, *, app: bool) -> Fact:
    """The fact as the model reads it, each of its texts tokenised once, before any time is spent."""
    if app and not (fact.correct or fact.false):
        raise RequestError(
            f"{fact.request.text!r}: APP protects correct and false answers, and this fact has none;"
            " give it `correct` or `false`, or leave APP out"
        )
    read = fact.as_read(language_model)
    with fact.request.named():
        asked = [Question(prompt, (fact.target,)) for prompt in read.prompts]
        tokenised(language_model, [question_of(read), *asked])
        subject_prompt(language_model, read.prompt, read.subject)
    return read


def _remark(language_model: LanguageModel, fact: Fact, editor: str, preset: Preset) -> str:
    """A warning where the edited token is the first of all: models keep no facts there."""
    found = base_hyperparameters(editor, language_model.name, preset)
    place = subject_prompt(language_model, fact.prompt, fact.subject).subject_last
    if place or not isinstance(found, VectorHyperparameters):
        return ""
    return (
        f"{fact.request.text!r}: the subject is the text's first token, whose state holds no fact, so"
        f" {editor} mostly fails; put a word before it, such as 'The country {{}} …'"
    )


def _caption(language_model: LanguageModel, editor: str, preset: Preset, facts: int) -> str:
    words = preset if isinstance(preset, str) else "own hyperparameters"
    untuned = " (untuned)" if preset == GENERIC else ""
    return f"{editor}, {words}{untuned}, {facts} facts, {language_model.description}"
