"""Edit facts of your own, in any model: what each edit did, in one table.

>>> result = edit_facts(lm, [Fact("Sudan", "{} shares a border with", "Thailand")], editor="rome")
>>> result.table
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from helpers.editing.app import App
from helpers.editing.build import build_editor
from helpers.editing.params_files import GENERIC
from helpers.editing.presets import Preset, default_preset
from helpers.editing.request import EditRequest, RequestError
from helpers.editing.update import Update, check_update, write
from helpers.models.language_model import LanguageModel
from helpers.models.tokens import several
from helpers.peak.additivity import additivity, keep_answers, probability_change
from helpers.scoring.answers import Question, score_answers
from helpers.scoring.responses import Sampling, sample_responses

Numbers = NDArray[np.float64]
_FACTORS = ("CPC", "AFF", "ANF")
GREEDY = Sampling(temperature=0, max_new_tokens=12, stop="\n", chat=False)


@dataclass(frozen=True)
class Fact:
    """One fact to write: after ``prompt`` the model is to say ``target``.

    Attributes:
        subject: the entity that the fact is about.
        prompt: a text that breaks off where the answer follows, with ``{}`` for the subject.
        target: the new answer.
        paraphrases: other wordings, with or without ``{}``, which the edit should reach.
        locality: prompts about other things, whose answers should stay.
        correct: answers of the fact that are to stay beside the new one (PEAK's O).
        false: answers that are to stay wrong (PEAK's O_h); with ``correct`` they switch AFF and ANF on.

    Raises:
        RequestError: see ``EditRequest``.
        TypeError: a single text where several belong.
    """

    subject: str
    prompt: str
    target: str
    paraphrases: tuple[str, ...] = ()
    locality: tuple[str, ...] = ()
    correct: tuple[str, ...] = ()
    false: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("paraphrases", "locality", "correct", "false"):
            object.__setattr__(self, name, several(getattr(self, name)))
        _ = self.request

    @property
    def request(self) -> EditRequest:
        """What an editor is asked."""
        return EditRequest(self.subject, self.prompt, self.target, self.correct, self.false)

    @property
    def prompts(self) -> tuple[str, ...]:
        """The prompt, its paraphrases and the locality prompts, subjects filled in."""
        texts = (self.prompt, *self.paraphrases, *self.locality)
        return tuple(text.replace("{}", self.subject) for text in texts)


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
    table = _table(language_model, facts, updates)
    table.attrs["caption"] = _caption(language_model, editor, chosen, len(facts))
    return EditedFacts(language_model, tuple(facts), tuple(updates), table)


def _caption(language_model: LanguageModel, editor: str, preset: Preset, facts: int) -> str:
    words = preset if isinstance(preset, str) else "own hyperparameters"
    untuned = " (untuned)" if preset == GENERIC else ""
    return f"{editor}, {words}{untuned}, {facts} facts, {language_model.description}"


def _table(
    language_model: LanguageModel, facts: Sequence[Fact], updates: Sequence[Update]
) -> pd.DataFrame:
    """The table of ``edit_facts``: everything is asked of the unedited and of the edited model."""
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
