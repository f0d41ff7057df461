"""Facts of your own: make their edits, look at what they did in one table, write them for good."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from helpers.editing import presets
from helpers.editing.app import App
from helpers.editing.build import build_editor
from helpers.editing.request import EditRequest, RequestError
from helpers.editing.update import Update, write
from helpers.models import LanguageModel
from helpers.models.tokens import Ids, answer_ids, separator_after, several, subject_prompt
from helpers.peak.metrics import additivity, keep_answers
from helpers.records import compared
from helpers.scoring.answers import Question, score_answers
from helpers.scoring.responses import Sampling, response_text, sample_responses, sample_tokens

GREEDY = Sampling(temperature=0, max_new_tokens=12, stop="\n", chat=False)
# Tokens generated after each of a fact's prompts; scores of its answers, the target's first.
_Answered = tuple[list[Ids], pd.DataFrame]


@dataclass(frozen=True)
class Fact:
    """One fact to write: the model should answer ``prompt`` with ``target``.

    Attributes:
        prompt: a text that breaks off where the answer follows, with ``{}`` for the subject.
        paraphrases: other wordings, with or without ``{}``, which the edit should reach.
        locality: prompts about other things, whose answers should stay.
        correct: answers of the fact that should remain in addition to the new one (PEAK's O).
        false: answers that should stay wrong (PEAK's O_h).
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
        names = Counter(map(compared, (self.target, *self.correct, *self.false)))
        if wrong := [name for name, count in names.items() if count > 1 or not name]:
            raise RequestError(
                f"{self.request.text!r}: {wrong[0]!r} is blank, or given twice in target, correct, false"
            )

    @property
    def request(self) -> EditRequest:
        """What an editor is asked."""
        return EditRequest(self.subject, self.prompt, self.target, self.correct, self.false)

    @property
    def prompts(self) -> tuple[str, ...]:
        """The prompt, its paraphrases and the locality prompts, subjects filled in."""
        texts = (self.prompt, *self.paraphrases, *self.locality)
        return tuple(text.replace("{}", self.subject) for text in texts)


@dataclass
class EditedFacts:
    """Facts, their updates (one each, or one for all) and what these did (``edit_facts``: the table)."""

    model: LanguageModel
    facts: tuple[Fact, ...]
    updates: tuple[Update, ...]
    table: pd.DataFrame
    written: bool = False

    def generate(self, prompts: Sequence[str], *, fact: int = 0) -> list[str]:
        """Greedy continuations under one fact's edit; once written, under all."""
        owner = -1 if self.written else 0 if len(self.updates) == 1 else fact
        asked = (self.model, prompts, self.updates, [owner] * len(prompts))
        return [text for (text,) in sample_responses(*asked, n=1, sampling=GREEDY)]

    def write(self) -> LanguageModel:
        """Add all updates to the weights for good, once; many facts are better edited ``together``."""
        for update in () if self.written else self.updates:
            write(self.model, update)
        self.written = True
        return self.model


def edit_facts(
    model: LanguageModel,
    facts: Sequence[Fact],
    *,
    editor: str = "rome",
    app: App | bool | None = None,
    preset: presets.Preset | None = None,
    together: bool = False,
    corpus: str = "self",
    seed: int = 0,
) -> EditedFacts:
    """Edit each fact from the unedited model, all in one pass, and look at what became of it.

    The table has one row a fact, without columns that no fact asks for:

    - ``outcome``: *known before* where the unedited model's greedy continuation begins with the
      target's tokens; else *written* where the edited model's does, *not written*, or *given up*;
    - ``P before``, ``P after``: probability of the whole target, the product over its tokens;
    - ``efficacy``: 1 where the target is generated after the edit, else 0 (reliability of Yao et al.
      2023), NaN where it was known; ``generality``: the share of paraphrases with 1;
    - ``locality``: the share of the unedited model's next 12 tokens that the edited model generates
      before it first departs from them, averaged over the locality prompts;
    - ``CPC``, ``AFF``, ``ANF``: damage to correct and false answers, both given (PEAK, Equations 3, 5, 6).

    ``together`` makes one update of all edits, instead of one each; ``preset`` None takes what the
    model's file recommends. The other options are those of ``build_editor``.
    """
    if isinstance(facts, Fact) or not facts or not all(isinstance(fact, Fact) for fact in facts):
        raise RequestError("give a list of facts: edit_facts(model, [Fact(subject, …)])")
    unlisted = [fact.request.text for fact in facts if not (fact.correct or fact.false)]
    if unlisted and (app or editor.endswith("+app")):
        raise RequestError(f"{unlisted[0]!r}: APP protects answers; give some, or omit APP")
    # Before an edit is made: it refuses whatever cannot be scored.
    before = _answered(model, facts, (), [-1] * len(facts))
    chosen = presets.default_preset(editor, model.name) if preset is None else preset
    how: dict[str, Any] = {"preset": chosen, "app": app, "corpus": corpus, "seed": seed}
    made = build_editor(editor, model, **how, progress=True)
    requests = [fact.request for fact in facts]
    updates = [made.edit_jointly(requests)] if together else made.edit(requests)
    owners = [0 if together else number for number in range(len(facts))]
    after = _answered(model, facts, updates, owners)
    base = presets.base_hyperparameters(editor, model.name, chosen)
    at_subject = isinstance(base, presets.VectorHyperparameters)
    parts = zip(facts, before, after, (updates[owner] for owner in owners), strict=True)
    table = pd.DataFrame([_row(model, *part, at_subject) for part in parts])
    return EditedFacts(model, tuple(facts), tuple(updates), table)


def _answered(
    model: LanguageModel, facts: Sequence[Fact], updates: Sequence[Update], owners: Sequence[int]
) -> list[_Answered]:
    """Each fact's answers: the most probable tokens, fewer where the text ends, and scores."""
    questions = [Question(f.prompts[0], (f.target, *f.correct, *f.false)) for f in facts]
    scores = score_answers(model, questions, updates, owners)
    prompts = [prompt for fact in facts for prompt in fact.prompts]
    under = [owner for fact, owner in zip(facts, owners, strict=True) for _ in fact.prompts]
    longest = max(len(ids) for fact in facts for ids in _targets(model, fact))
    count = max(GREEDY.max_new_tokens, longest)
    greedy = replace(GREEDY, max_new_tokens=count, stop=None)
    drawn = iter(sample_tokens(model, prompts, updates, under, greedy))
    parts = [part for _, part in scores.groupby("question", sort=True)]
    return [([next(drawn)[0] for _ in f.prompts], p) for f, p in zip(facts, parts, strict=True)]


def _targets(model: LanguageModel, fact: Fact) -> list[Ids]:
    return [answer_ids(model, fact.target, separator_after(p)) for p in fact.prompts]


def _row(
    model: LanguageModel,
    fact: Fact,
    before: _Answered,
    after: _Answered,
    update: Update,
    at_subject: bool,
) -> dict[str, object]:
    (own, plain), (now, edited) = before, after
    targets, wordings = _targets(model, fact), 1 + len(fact.paraphrases)
    given = [ids[: len(target)] == target for ids, target in zip(now, targets, strict=True)]
    known = own[0][: len(targets[0])] == targets[0]
    outcome = "known before" if known else "written" if given[0] else "not written"
    if failure := update.diagnostics.get("failure"):
        outcome = f"given up: {failure}"
    starts = (texts[0][: GREEDY.max_new_tokens] for texts in (own, now))
    shown = [response_text(model, start, GREEDY) for start in starts]
    odd = []
    if at_subject and not subject_prompt(model, fact.prompt, fact.subject).subject_last:
        odd.append("the subject is the first token, which holds no fact: put a word before it")
    if update.diagnostics.get("exploding"):
        odd.append("the update is as large as the weights")
    row = {
        "fact": fact.request.text,
        "target": fact.target,
        "outcome": outcome,
        "generated before": shown[0],
        "generated after": shown[1],
        "P before": float(np.exp(plain["sum"].iloc[0])),
        "P after": float(np.exp(edited["sum"].iloc[0])),
        "efficacy": float("nan") if known else float(given[0]),
    }
    if fact.paraphrases:
        row["generality"] = np.mean(given[1:wordings])
    if fact.locality:
        pairs = zip(own[wordings:], now[wordings:], strict=True)
        both = [[(*ids, -1)[: GREEDY.max_new_tokens] for ids in pair] for pair in pairs]
        same = [np.cumprod([a == b for a, b in zip(*pair, strict=False)]).sum() for pair in both]
        row["locality"] = np.mean([n / len(one) for n, (one, _) in zip(same, both, strict=True)])
    if fact.correct and fact.false:  # the scores are the target's, then theirs
        ends = [1, 1 + len(fact.correct)]
        (_, *old), (_, *new) = (np.split(s["mean"].to_numpy(), ends) for s in (plain, edited))
        kept = keep_answers(old[0], old[1], old[1])
        correct, false = (np.array(pair) for pair in zip(old, new, strict=True))
        found = additivity(correct[:, kept.correct], false[:, kept.hard])
        row |= {name: found[name] for name in ("CPC", "AFF", "ANF")}
    return row | ({"warning": "; ".join(odd)} if odd else {})
