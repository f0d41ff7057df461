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

KL_PROMPT = "{} is a"
TARGETS = ("new", "all", "all-sum")


def weighted_targets(request: EditRequest, targets: str = "new") -> list[tuple[str, float]]:
    """The answers whose negative log-likelihood an edit lowers, each with its weight in the sum.

    Raises:
        ValueError: ``targets`` is not one of ``TARGETS``.
    """
    if targets not in TARGETS:
        raise ValueError(f"targets must be one of {', '.join(TARGETS)}, not {targets!r}")
    others = request.correct if targets != "new" else ()
    own = 1.0 if targets == "all-sum" else 1 / (1 + len(others))
    share = 1 / len(others) if targets == "all-sum" and others else own
    return [(request.target, own), *((answer, share) for answer in others)]


@dataclass(frozen=True)
class Prediction:
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
    edited).
    """

    record: str = ""
    forest: Forest = field(default_factory=Forest)
    bare_node: int = -1
    kl_node: int = -1
    target: list[Prediction] = field(default_factory=list)
    correct: list[list[Prediction]] = field(default_factory=list)
    false: list[list[Prediction]] = field(default_factory=list)

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
    contexts: ContextTemplates,
    app: App | None = None,
    *,
    targets: str = "new",
) -> EditRow:
    """The row of one request for an editor that adds a vector at the subject's last token.

    Args:
        language_model: the model, for its tokenizer.
        contexts: context templates; the bare one is first.
        app: whose answers are added after the bare prompt, if any.
        targets: which answers are made likely, of ``TARGETS``.

    Raises:
        RequestError: the subject or a text cannot be tokenised; names the record.
    """
    row = EditRow(request.record or request.text)
    prompts = subject_prompts(language_model, request, contexts)
    asked = [(request, prompts, weighted_targets(request, targets))]
    for prompt_text, target in request.further:
        other = replace(request, prompt=prompt_text, further=())
        asked.append((other, subject_prompts(language_model, other, contexts), [(target, 1.0)]))
    for other, wordings, wanted in asked:
        tokens = _tokens(language_model, other, [text for text, _ in wanted])
        for prompt in wordings:
            for text, weight in wanted:
                ids, scale = tokens[text], weight / (len(asked) * len(wordings))
                row.target += row.predict(prompt.ids, ids, prompt.subject_last, scale=scale)
    bare = prompts[0]
    row.bare_node = row.forest.add(bare.ids, bare.subject_last)[bare.subject_last]
    with request.named():
        kl = subject_prompt(language_model, KL_PROMPT, request.subject)
    # Only the subject's last token is read, so the rest of the KL prompt need not run.
    row.kl_node = row.forest.add(kl.ids[: kl.subject_last + 1], kl.subject_last)[-1]
    if app:
        _add_answers(row, language_model, request, app, bare.ids, bare.subject_last)
    return row


def subject_prompts(
    language_model: LanguageModel, request: EditRequest, contexts: ContextTemplates
) -> list[SubjectPrompt]:
    """The request's prompt in every context, tokenised, with the subject's last token.

    Raises:
        RequestError: the subject or a text cannot be tokenised; names the record.
    """
    templates = [template.replace("{}", request.prompt) for template in contexts.templates]
    with request.named():
        return tokenised(language_model, templates, request.subject)


def loss_row(
    language_model: LanguageModel,
    request: EditRequest,
    app: App | None = None,
    *,
    targets: str = "new",
    prompt_last: bool = False,
) -> EditRow:
    """The row of one request for FT and MEND: the bare prompt with its target and answers.

    Args:
        language_model: the model, for its tokenizer.
        app: whose answers are scored, too, if any.
        targets: which answers are made likely, of ``TARGETS``.
        prompt_last: read every token of an answer from the distribution after the prompt (FT-L)
            instead of after the tokens before it.

    Raises:
        RequestError: a text cannot be tokenised or exceeds the context; names the record.
    """
    row = EditRow(request.record or request.text)
    weighted = weighted_targets(request, targets)
    with request.named():
        prompt = prompt_ids(language_model, request.text)
    tokens = _tokens(language_model, request, [text for text, _ in weighted])
    for text, weight in weighted:
        row.target += row.predict(prompt, tokens[text], at_once=prompt_last, scale=weight)
    if app:
        tokens |= _add_answers(row, language_model, request, app, prompt, at_once=prompt_last)
    # FT-L itself reads only the prompt, but whoever scores its edit reads the answers after it.
    longest = len(prompt) + max(map(len, tokens.values())) - 1
    check_length(language_model, row.record, longest)
    return row


def _add_answers(
    row: EditRow,
    language_model: LanguageModel,
    request: EditRequest,
    app: App,
    prompt: Sequence[int],
    edited_at: int | None = None,
    *,
    at_once: bool = False,
) -> dict[str, tuple[int, ...]]:
    """APP's answers after the bare prompt; returns their tokens."""
    correct, false = app.answers(request)
    tokens = _tokens(language_model, request, [*correct, *false])
    for answers, slots in ((correct, row.correct), (false, row.false)):
        slots += [row.predict(prompt, tokens[text], edited_at, at_once=at_once) for text in answers]
    return tokens


def _tokens(
    language_model: LanguageModel, request: EditRequest, texts: Sequence[str]
) -> dict[str, tuple[int, ...]]:
    with request.named():
        return ids_of_answers(language_model, texts, separator_after(request.text))


def check_length(language_model: LanguageModel, record: str, tokens: int) -> None:
    """Refuse a record whose longest text exceeds the context."""
    if tokens > language_model.context_length:
        raise RequestError(
            f"record {record!r}: prompt and target of {tokens} tokens exceed the context of"
            f" {language_model.context_length}; shorten them"
        )
