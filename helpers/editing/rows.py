"""An edit's row: every text its loss needs, packed into one prefix forest.

Template prompts with their target, the KL prompt and, for APP, all answers after the bare prompt are
sequences of one row. Which answers are made likely is a choice of ``targets``: PEAK's fairer baselines
(Table 5, ``+``) give a plain editor all N correct answers O besides the new one, o*. The paper does
not state their weights:

    new       NLL(o*)
    all       (NLL(o*) + sum of NLL over O) / (N + 1)       o* weighs 1 / (N + 1)
    all-sum   NLL(o*) + mean of NLL over O                  o* weighs as much as O together
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from helpers.editing.app import App
from helpers.editing.contexts import ContextTemplates
from helpers.editing.request import EditRequest, RequestError
from helpers.models.forest import Forest
from helpers.models.language_model import LanguageModel
from helpers.models.tokens import (
    SubjectPrompt,
    ids_of_answers,
    prompt_ids,
    separator_after,
    subject_prompt,
)
from helpers.models.tokens import subject_prompts as tokenised

Ids = tuple[int, ...]
KL_PROMPT = "{} is a"
TARGETS = ("new", "all", "all-sum")


def weighted_targets(request: EditRequest, targets: str = "new") -> list[tuple[str, float]]:
    """The answers whose negative log-likelihood an edit lowers, each with its weight in the sum."""
    others = request.correct if targets != "new" else ()
    own = 1.0 if targets == "all-sum" else 1 / (1 + len(others))
    share = 1 / len(others) if targets == "all-sum" and others else own
    return [(request.target, own), *((answer, share) for answer in others)]


class Prediction(NamedTuple):
    """A token predicted at a node, with its weight in a mean."""

    node: int
    token: int
    weight: float


@dataclass
class EditRow:
    """One edit's forest and the predictions its losses read.

    ``target`` holds the weighted predictions of the negative log-likelihood (``weighted_targets``),
    ``correct`` and ``false`` those of each answer's mean-token log-probability, ``kl_node`` is the
    subject's last token in the KL prompt, ``bare_node`` in the bare prompt (-1 where no position is
    edited). ``longest`` counts the tokens of its longest text with an answer.
    """

    record: str = ""
    forest: Forest = field(default_factory=Forest)
    bare_node: int = -1
    kl_node: int = -1
    target: list[Prediction] = field(default_factory=list)
    correct: list[list[Prediction]] = field(default_factory=list)
    false: list[list[Prediction]] = field(default_factory=list)
    longest: int = 0

    def predict(
        self,
        prompt: Sequence[int],
        answer: Sequence[int],
        edited_at: int | None = None,
        *,
        at_once: bool = False,
        scale: float = 1.0,
    ) -> list[Prediction]:
        """Add an answer after its prompt; the predictions of its tokens, weights adding to ``scale``.

        ``at_once`` predicts every token right after the prompt instead of after those before it.
        """
        # Also with FT-L: whoever scores its edit reads the answers after the prompt.
        self.longest = max(self.longest, len(prompt) + len(answer) - 1)
        if at_once:
            nodes = self.forest.add(prompt, edited_at)[-1:] * len(answer)
        else:
            nodes = self.forest.add_answer(prompt, answer, edited_at)
        weight = scale / len(answer)
        return [Prediction(node, token, weight) for node, token in zip(nodes, answer, strict=True)]

    def active(self) -> np.ndarray:
        """Boolean [nodes]: edited nodes and all that follow them; every node where none is edited."""
        return self.forest.active() if any(self.forest.edited) else np.ones(len(self.forest), bool)


def edit_row(
    language_model: LanguageModel,
    request: EditRequest,
    app: App | None = None,
    *,
    contexts: ContextTemplates | None = None,
    targets: str = "new",
    prompt_last: bool = False,
) -> EditRow:
    """The row of one request.

    Args:
        app: whose answers are added after the bare prompt, if any.
        contexts: for an editor that adds a vector at the subject's last token, the templates, the bare
            one first; None for FT and MEND, whose row is the bare prompt with target and answers.
        targets: which answers are made likely, of ``TARGETS``.
        prompt_last: read every token of an answer from the distribution after the prompt (FT-L)
            instead of after the tokens before it.

    Raises:
        RequestError: the subject or a text cannot be tokenised; names the record.
    """
    row = EditRow(request.record or request.text)
    asked = [(request, weighted_targets(request, targets))]
    for prompt_text, target in request.further:
        asked.append((replace(request, prompt=prompt_text, further=()), [(target, 1.0)]))
    how: dict[str, Any] = {"at_once": prompt_last}
    for other, wanted in asked:
        prompts = _prompts(language_model, other, contexts)
        tokens = _tokens(language_model, other, [text for text, _ in wanted])
        for prompt, subject in prompts:
            for text, weight in wanted:
                scale = weight / (len(asked) * len(prompts))
                row.target += row.predict(prompt, tokens[text], subject, scale=scale, **how)
    bare, subject = _prompts(language_model, request, contexts)[0]
    if subject is not None:
        row.bare_node = row.forest.add(bare, subject)[subject]
        with request.named():
            kl = subject_prompt(language_model, KL_PROMPT, request.subject)
        # Only the subject's last token is read, so the rest of the KL prompt need not run.
        row.kl_node = row.forest.add(kl.ids[: kl.subject_last + 1], kl.subject_last)[-1]
    correct, false = app.answers(request) if app else ((), ())
    neighbours = _tokens(language_model, request, [*correct, *false])
    for answers, slots in ((correct, row.correct), (false, row.false)):
        slots += [row.predict(bare, neighbours[text], subject, **how) for text in answers]
    return row


def _prompts(
    language_model: LanguageModel, request: EditRequest, contexts: ContextTemplates | None
) -> list[tuple[Ids, int | None]]:
    """Token ids of every wording, with the place of the subject's last token where it is edited."""
    if contexts is not None:
        found = subject_prompts(language_model, request, contexts)
        return [(prompt.ids, prompt.subject_last) for prompt in found]
    with request.named():
        return [(prompt_ids(language_model, request.text), None)]


def subject_prompts(
    language_model: LanguageModel, request: EditRequest, contexts: ContextTemplates
) -> list[SubjectPrompt]:
    """The request's prompt in every context, tokenised, with the subject's last token."""
    templates = [template.replace("{}", request.prompt) for template in contexts.templates]
    with request.named():
        return tokenised(language_model, templates, request.subject)


def _tokens(
    language_model: LanguageModel, request: EditRequest, texts: Sequence[str]
) -> dict[str, Ids]:
    with request.named():
        return ids_of_answers(language_model, texts, separator_after(request.text))


def check_length(language_model: LanguageModel, record: str, tokens: int) -> None:
    """Refuse a record whose longest text exceeds the context."""
    if tokens > language_model.context_length:
        raise RequestError(
            f"record {record!r}: prompt and target of {tokens} tokens exceed the context of"
            f" {language_model.context_length}; shorten them"
        )
