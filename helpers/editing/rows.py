"""An edit's row: every text its loss needs, packed into one prefix forest.

Template prompts with their target, the KL prompt and, for APP, all answers after the bare prompt are
sequences of one row. The KL prompt "{subject} is a" is read at the subject's last token and ends there, as in
ROME's code; PEAK's Equation 12 has the whole of it.

``targets`` are the answers made likely: PEAK's fairer baselines (Table 5, ``+``) give a plain editor all N
correct answers O in addition to the new one, o*. The paper does not state weights:

    new       NLL(o*)
    all       (NLL(o*) + sum of NLL over O) / (N + 1)       o* weighs 1 / (N + 1)
    all-sum   NLL(o*) + mean of NLL over O                  o* weighs as much as O together

With icd the row also has the answers of its training probes, and a forest of what the teacher reads: each of
them after every one of its contexts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from helpers.editing.app import App
from helpers.editing.contexts import ContextTemplates
from helpers.editing.icd import Icd
from helpers.editing.request import EditRequest, RequestError, TrainingProbe
from helpers.models import LanguageModel
from helpers.models.forest import Forest
from helpers.models.tokens import (
    SubjectPrompt,
    answer_ids,
    ids_of_answers,
    ids_of_prompts,
    prompt_ids,
    separator_after,
    subject_prompt,
    subject_prompts,
)

Ids = tuple[int, ...]
KL_PROMPT = "{} is a"


def weighted_targets(request: EditRequest, targets: str = "new") -> list[tuple[str, float]]:
    """The answers whose negative log-likelihood an edit lowers, each with its weight in the sum."""
    if targets == "new" or not request.correct:
        return [(request.target, 1.0)]
    number_of_others = len(request.correct)
    if targets == "all-sum":
        weight_of_target, weight_of_other = 1.0, 1 / number_of_others
    else:
        weight_of_target = weight_of_other = 1 / (1 + number_of_others)
    others = [(answer, weight_of_other) for answer in request.correct]
    return [(request.target, weight_of_target), *others]


class TokenAtNode(NamedTuple):
    """A token predicted at a node, with its weight in a mean."""

    node: int
    token: int
    weight: float


class DistilledToken(NamedTuple):
    """A token of a training probe's answer, at which the edited model's distribution meets the teacher's."""

    node: int  # that predicts it, in the row's forest
    teacher_nodes: tuple[int, ...]  # in the teacher's forest, one for each context
    weight: float  # in the mean over the row's probes, and over the tokens of each
    excluded_token: int = -1  # that counts for neither distribution; -1: none


@dataclass
class EditRow:
    """One edit's forest and the predictions its losses read."""

    record: str = ""
    forest: Forest = field(default_factory=Forest)
    bare_node: int = -1  # the edited token of the bare prompt; -1 where no position is edited
    kl_node: int = -1  # that of the KL prompt
    target: list[TokenAtNode] = field(default_factory=list)  # see ``weighted_targets``
    correct: list[list[TokenAtNode]] = field(default_factory=list)  # an answer's mean-token scores
    false: list[list[TokenAtNode]] = field(default_factory=list)
    distilled: list[DistilledToken] = field(default_factory=list)  # of icd's training probes
    teacher: Forest = field(default_factory=Forest)  # what the teacher of these reads
    longest_length: int = 0  # tokens of its longest text with an answer

    def predict(
        self,
        ids: Sequence[int],
        answer: Sequence[int],
        edited_position: int | None = None,
        *,
        read_at_end: bool = False,
        total_weight: float = 1.0,
    ) -> list[TokenAtNode]:
        """Add an answer: predictions of its tokens, whose weights add to ``total_weight``.

        With ``read_at_end`` all of them are predicted by the last token of the prompt.
        """
        # Also with FT-L: whoever scores its edit reads the answers after the prompt.
        self.longest_length = max(self.longest_length, len(ids) + len(answer) - 1)
        if read_at_end:
            nodes = self.forest.add(ids, edited_position)[-1:] * len(answer)
        else:
            nodes = self.forest.add_answer(ids, answer, edited_position)
        weight = total_weight / len(answer)
        return [TokenAtNode(node, token, weight) for node, token in zip(nodes, answer, strict=True)]

    def active(self) -> np.ndarray:
        """Boolean [nodes]: edited nodes and all that follow them; every node where none is edited."""
        if any(self.forest.edited):
            return self.forest.active()
        return np.ones(len(self.forest), bool)


def edit_row(  # noqa: PLR0913 - what editors differ in, each by its name
    lm: LanguageModel,
    request: EditRequest,
    app: App | None = None,
    *,
    icd: Icd | None = None,
    contexts: ContextTemplates | None = None,
    targets: str = "new",
    answers_read_at_end: bool = False,
    edited_at_end: bool = False,
    eos: bool = False,
) -> EditRow:
    """The row of one request, with the answers that APP protects after its bare prompt, or icd's probes.

    With ``contexts`` the subject's last token is edited, in each of them; ``edited_at_end`` (GRACE) the
    prompt's last token; else (FT, MEND) no position. With ``answers_read_at_end`` (FT-L) every token of an
    answer is read right after the prompt. With ``eos`` every target ends with the end-of-text token.
    """
    end_of_text = (lm.tokenizer.eos_token_id,) if eos else ()
    row = EditRow(request.record or request.text)
    requests_with_targets = [(request, weighted_targets(request, targets))]
    for prompt_text, target in request.further:
        requests_with_targets.append(
            (replace(request, prompt=prompt_text, further=()), [(target, 1.0)])
        )
    with request.named():
        for request_of_prompt, answers in requests_with_targets:
            prompts = _prompts(lm, request_of_prompt, contexts, edited_at_end)
            ids_by_answer = ids_of_answers(
                lm, [answer for answer, _ in answers], separator_after(request_of_prompt.text)
            )
            for ids, edited_position in prompts:
                for answer, weight in answers:
                    row.target += row.predict(
                        ids,
                        (*ids_by_answer[answer], *end_of_text),
                        edited_position,
                        read_at_end=answers_read_at_end,
                        total_weight=weight / (len(requests_with_targets) * len(prompts)),
                    )
        bare_ids, edited_position = _prompts(lm, request, contexts, edited_at_end)[0]
        if edited_position is not None:
            nodes = row.forest.add(bare_ids, edited_position)
            row.bare_node = nodes[edited_position]
        if contexts is not None:
            row.kl_node = _add_kl_prompt(lm, row.forest, request)
        correct, false = app.answers(request) if app else ((), ())
        if icd is not None:
            false = icd.false_answers(request)
            _add_probes(lm, row, request, icd, at_subject=contexts is not None)
        ids_by_answer = ids_of_answers(lm, [*correct, *false], separator_after(request.text))
    for answer in correct:
        predictions = row.predict(
            bare_ids, ids_by_answer[answer], edited_position, read_at_end=answers_read_at_end
        )
        row.correct.append(predictions)
    for answer in false:
        predictions = row.predict(
            bare_ids, ids_by_answer[answer], edited_position, read_at_end=answers_read_at_end
        )
        row.false.append(predictions)
    return row


def _add_probes(
    lm: LanguageModel, row: EditRow, request: EditRequest, icd: Icd, *, at_subject: bool
) -> None:
    """Add the answers of a request's training probes, and what the teacher reads.

    ``at_subject`` the subject's last token is edited; a probe that is about something else has none.
    """
    probes = [probe for probe in icd.probes(request) if probe.is_about_subject or not at_subject]
    for probe in probes:
        text = probe.text(request.subject)
        separator = separator_after(text)
        ids_of_answer = answer_ids(lm, probe.answer, separator)
        edited_position = None
        ids: Ids = prompt_ids(lm, text)
        if at_subject:
            ids, edited_position = _subject_position(lm, probe, request)
        predictions = row.predict(ids, ids_of_answer, edited_position, total_weight=1 / len(probes))
        teacher_prompts = [
            f"{context}\n\n{text}" if context else text for context in probe.contexts
        ]
        ids_of_teacher = ids_of_prompts(lm, teacher_prompts)
        teacher_nodes = [
            row.teacher.add_answer(ids_of_teacher[teacher_prompt], ids_of_answer)
            for teacher_prompt in teacher_prompts
        ]
        for number, (prediction, nodes_of_token) in enumerate(
            zip(predictions, zip(*teacher_nodes, strict=True), strict=True)
        ):
            excluded_token = -1
            if probe.kind == "list" and number == 0:
                excluded_token = answer_ids(lm, request.target, separator)[0]
            row.distilled.append(
                DistilledToken(prediction.node, nodes_of_token, prediction.weight, excluded_token)
            )


def _subject_position(
    lm: LanguageModel, probe: TrainingProbe, request: EditRequest
) -> tuple[Ids, int]:
    """Token ids of a probe's prompt, and the position of its subject's last token."""
    prompt = subject_prompt(lm, probe.prompt, request.subject)
    return prompt.ids, prompt.subject_last


def _add_kl_prompt(lm: LanguageModel, forest: Forest, request: EditRequest) -> int:
    """Add the KL prompt up to the subject's last token, which alone is read; that token's node."""
    prompt = subject_prompt(lm, KL_PROMPT, request.subject)
    return forest.add(prompt.ids[: prompt.subject_last + 1], prompt.subject_last)[-1]


def _prompts(
    lm: LanguageModel,
    request: EditRequest,
    contexts: ContextTemplates | None,
    edited_at_end: bool,
) -> list[tuple[Ids, int | None]]:
    """Token ids of every wording, with the position of the token that is edited, if one is."""
    if contexts is None:
        ids = prompt_ids(lm, request.text)
        return [(ids, len(ids) - 1 if edited_at_end else None)]
    in_contexts = prompts_in_contexts(lm, request, contexts)
    return [(prompt.ids, prompt.subject_last) for prompt in in_contexts]


def prompts_in_contexts(
    lm: LanguageModel, request: EditRequest, contexts: ContextTemplates
) -> list[SubjectPrompt]:
    """The request's prompt in every context, tokenised, with the subject's last token."""
    templates = [template.replace("{}", request.prompt) for template in contexts.templates]
    with request.named():
        return subject_prompts(lm, templates, request.subject)


def check_record_length(lm: LanguageModel, record: str, tokens: int) -> None:
    """Refuse a record whose longest text exceeds the context."""
    if tokens > lm.context_length:
        raise RequestError(
            f"record {record!r}: prompt and target of {tokens} tokens exceed the context of"
            f" {lm.context_length}; shorten them"
        )
