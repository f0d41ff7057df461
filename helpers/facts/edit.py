"""Edits of one's own facts: make them, look at what they did, write them for good."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd

from helpers.editing.app import App
from helpers.editing.build import build_editor
from helpers.editing.params_files import GENERIC
from helpers.editing.presets import Preset, default_preset
from helpers.editing.request import RequestError
from helpers.editing.update import Update, check_update, write
from helpers.facts.fact import Fact
from helpers.facts.table import GREEDY, facts_table
from helpers.models.language_model import LanguageModel
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
        self, prompts: Sequence[str], *, fact: int = 0, sampling: Sampling = GREEDY
    ) -> list[str]:
        """What the model says after each prompt under the edit of one fact; once written, under all."""
        owner = -1 if self._written else self._owner(fact)
        drawn = sample_responses(
            self.language_model,
            prompts,
            self.updates,
            [owner] * len(prompts),
            n=1,
            sampling=sampling,
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

    def _owner(self, fact: int) -> int:
        return 0 if len(self.updates) == 1 else range(len(self.updates))[fact]


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

        - ``said before``, ``said after``: the model's own continuation of the prompt (greedy);
        - ``P before``, ``P after``: probability of the target's tokens (geometric mean);
        - ``efficacy``: 1 where the target is more probable than what the unedited model said;
        - ``paraphrases``: the share of paraphrases where it is;
        - ``locality``: the share of locality prompts at which the edited model says what it said before;
        - ``CPC``: change of the correct answers' probability (PEAK, equation 3); ``AFF``, ``ANF`` (5, 6)
          where false answers are given, too, on those that the filter of Section 5.1 keeps;
        - ``failure``: why an edit was given up, if one was.

        Columns that no fact asks for are left out; NaN where this fact does not.

    Raises:
        RequestError: no facts, or something else than facts.
        HyperparameterError: see ``build_editor``.
    """
    if isinstance(facts, Fact) or not facts or not all(isinstance(fact, Fact) for fact in facts):
        raise RequestError(
            "give a list of facts: edit_facts(model, [Fact(subject, prompt, target)])"
        )
    chosen = preset if preset is not None else default_preset(editor, language_model.name)
    made = build_editor(editor, language_model, preset=chosen, app=app, corpus=corpus, seed=seed)
    requests = [fact.request for fact in facts]
    updates = [made.edit_jointly(requests)] if together else made.edit(requests)
    table = facts_table(language_model, facts, updates)
    table.attrs["caption"] = _caption(language_model, editor, chosen, len(facts))
    return EditedFacts(language_model, tuple(facts), tuple(updates), table)


def _caption(language_model: LanguageModel, editor: str, preset: Preset, facts: int) -> str:
    words = preset if isinstance(preset, str) else "own hyperparameters"
    untuned = " (untuned)" if preset == GENERIC else ""
    return f"{editor}, {words}{untuned}, {facts} facts, {language_model.description}"
