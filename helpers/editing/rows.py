"""An edit's row: every text its optimisation needs, packed into one prefix forest.

Template prompts with their target, the KL prompt and, for APP, all answers after the bare prompt are
sequences of one row. What stands left of the edited positions is constant and is computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from helpers.editing.app import App
from helpers.editing.context import ContextTemplates
from helpers.editing.request import EditRequest, RequestError
from helpers.models.forest import Forest
from helpers.models.language_model import LanguageModel
from helpers.models.tokens import SubjectPrompt, TokenError, answer_ids, subject_prompt

KL_PROMPT = "{} is a"


@dataclass(frozen=True)
class Prediction:
    """A token predicted at a node, with its weight in a mean."""

    node: int
    token: int
    weight: float


@dataclass
class EditRow:
    """One edit's forest and the predictions its losses read.

    ``target`` holds the weighted predictions of the negative log-likelihood (weights sum to one),
    ``correct`` and ``false`` those of each answer's mean-token log-probability, ``kl_node`` is the
    subject's last token in the KL prompt, ``bare_node`` in the bare prompt.
    """

    record: str = ""
    forest: Forest = field(default_factory=Forest)
    bare_node: int = -1
    kl_node: int = -1
    target: list[Prediction] = field(default_factory=list)
    correct: list[list[Prediction]] = field(default_factory=list)
    false: list[list[Prediction]] = field(default_factory=list)


def edit_row(
    language_model: LanguageModel,
    request: EditRequest,
    contexts: ContextTemplates,
    app: App | None = None,
    *,
    all_answers: bool = False,
) -> EditRow:
    """Build the row of one request.

    Args:
        language_model: the model, for its tokenizer.
        request: the edit.
        contexts: context templates; the bare one is first.
        app: whose answers are added after the bare prompt, if any.
        all_answers: make every correct answer a target too, each with the same share
            ("fairer baselines", PEAK Table 5).

    Raises:
        RequestError: the subject or a text cannot be tokenised; names the record.
    """
    try:
        return _edit_row(language_model, request, contexts, app, all_answers)
    except TokenError as error:
        raise RequestError(f"record {request.record or request.text!r}: {error}") from error


def _edit_row(
    language_model: LanguageModel,
    request: EditRequest,
    contexts: ContextTemplates,
    app: App | None,
    all_answers: bool,
) -> EditRow:
    prompts = subject_prompts(language_model, request, contexts)
    row = EditRow(request.record or request.text)
    texts = [request.target, *(request.correct if all_answers else ())]
    targets = [answer_ids(language_model, text) for text in texts]
    for prompt in prompts:
        for ids in targets:
            row.target += _add(row.forest, prompt, ids, scale=1 / (len(prompts) * len(targets)))
    bare = prompts[0]
    row.bare_node = row.forest.add(bare.ids, bare.subject_last)[bare.subject_last]
    kl = subject_prompt(language_model, KL_PROMPT, request.subject)
    # Only the subject's last token is read, so the rest of the KL prompt need not run.
    row.kl_node = row.forest.add(kl.ids[: kl.subject_last + 1], kl.subject_last)[-1]
    correct, false = app.answers(request) if app else ((), ())
    for answers, predictions in ((correct, row.correct), (false, row.false)):
        for answer in answers:
            predictions.append(_add(row.forest, bare, answer_ids(language_model, answer)))
    return row


def _add(
    forest: Forest, prompt: SubjectPrompt, ids: Sequence[int], scale: float = 1.0
) -> list[Prediction]:
    """Insert prompt and answer; the predictions of the answer's tokens, weights adding to scale."""
    nodes = forest.add_answer(prompt.ids, ids, prompt.subject_last)
    weight = scale / len(ids)
    return [Prediction(node, token, weight) for node, token in zip(nodes, ids, strict=True)]


def subject_prompts(
    language_model: LanguageModel, request: EditRequest, contexts: ContextTemplates
) -> list[SubjectPrompt]:
    """The request's prompt in every context, tokenised, with the subject's last token.

    Raises:
        RequestError: the subject or a text cannot be tokenised; names the record.
    """
    try:
        return [
            subject_prompt(language_model, template.replace("{}", request.prompt), request.subject)
            for template in contexts.templates
        ]
    except TokenError as error:
        raise RequestError(f"record {request.record or request.text!r}: {error}") from error
