"""An edit's row: every text its optimisation needs, packed into one prefix forest.

Template prompts with their target, the KL prompt and, for APP, all answers after the bare prompt are
sequences of one row. What stands left of the edited positions is constant and is computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from helpers.editing.app import App
from helpers.editing.context import ContextTemplates
from helpers.editing.request import EditRequest
from helpers.editing.targets import weighted_targets
from helpers.models.forest import Forest
from helpers.models.language_model import LanguageModel
from helpers.models.tokens import SubjectPrompt, ids_of_answers, separator_after, subject_prompt
from helpers.models.tokens import subject_prompts as tokenised

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

    ``target`` holds the weighted predictions of the negative log-likelihood (``weighted_targets``),
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


def edit_row(
    language_model: LanguageModel,
    request: EditRequest,
    contexts: ContextTemplates,
    app: App | None = None,
    *,
    targets: str = "new",
) -> EditRow:
    """Build the row of one request.

    Args:
        language_model: the model, for its tokenizer.
        contexts: context templates; the bare one is first.
        app: whose answers are added after the bare prompt, if any.
        targets: which answers are made likely, of ``helpers.editing.targets.TARGETS``.

    Raises:
        RequestError: the subject or a text cannot be tokenised; names the record.
    """
    prompts = subject_prompts(language_model, request, contexts)
    row = EditRow(request.record or request.text)
    correct, false = app.answers(request) if app else ((), ())
    with request.named():
        neighbours = ids_of_answers(
            language_model, (*correct, *false), separator_after(request.text)
        )
        kl = subject_prompt(language_model, KL_PROMPT, request.subject)
    asked = [(request, prompts, list(weighted_targets(request, targets)))]
    for prompt_text, target in request.further:
        other = replace(request, prompt=prompt_text, further=())
        asked.append((other, subject_prompts(language_model, other, contexts), [(target, 1.0)]))
    for other, wordings, wanted in asked:
        with request.named():
            tokens = ids_of_answers(
                language_model, (text for text, _ in wanted), separator_after(other.text)
            )
        for prompt in wordings:
            for text, weight in wanted:
                scale = weight / (len(asked) * len(wordings))
                row.target += row.predict(
                    prompt.ids, tokens[text], prompt.subject_last, scale=scale
                )
    bare = prompts[0]
    row.bare_node = row.forest.add(bare.ids, bare.subject_last)[bare.subject_last]
    # Only the subject's last token is read, so the rest of the KL prompt need not run.
    row.kl_node = row.forest.add(kl.ids[: kl.subject_last + 1], kl.subject_last)[-1]
    for answers, slots in ((correct, row.correct), (false, row.false)):
        slots += [row.predict(bare.ids, neighbours[text], bare.subject_last) for text in answers]
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
