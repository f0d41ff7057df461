"""icd, in-context distillation: the edited model answers as the unedited one with the fact in context.

With the training probes x_j of a request, the context c_j of each, and p_W0 the model before the edit,

    L = NLL + mu * mean over j of KL(p_W0(. | c_j, x_j) || p_W(. | x_j)) + gamma L3

A probe's KL is the mean over the tokens of its answer, over the full vocabulary, at temperature 1. The
teacher p_W0 is frozen: it is computed once for each request. gamma is 0, or weighs APP's third term, which
keeps false answers down (``app``). Kinds of probes::

    list     each correct answer after the request's prompt; c states all of them and the target, in
             ``orders`` random orders, whose probabilities are averaged
    chain    what follows from the new fact; c states it, and the facts that remain
    near     facts about the subject that stay; without a context

The target's first token is omitted from both distributions of ``list`` at the prompt's last token, and what
is left adds to 1: the NLL alone decides how probable the target is.

This is our own definition, of no paper. ICE (Qi et al. 2024) trains towards the in-context distribution too,
on sampled tokens and on the target, with a context that is generated and a teacher that is not frozen.

Editors stop by the NLL, whatever the other terms are. *A probe that trains is never one that scores*:
``ScoredTexts`` refuses a request whose probes are asked about. Tables read the fields without torch.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from helpers.records import comparable

if TYPE_CHECKING:
    from torch import Tensor

    from helpers.editing.request import EditRequest, TrainingProbe

# Each field of ``Icd`` that a variant can change, as tables write it.
ICD_SYMBOLS = {"mu": "μ", "gamma": "γ"}
PROBE_KINDS = ("list", "chain", "near")
FALSE_ANSWER = "false"  # kind of a trained text that is no probe: what gamma keeps down
LEAST_ORDERS = 4  # the first answer of a list is more probable than the later ones


class TrainedText(NamedTuple):
    """An answer after a prompt that the objective reads."""

    kind: str  # one of ``PROBE_KINDS``, or ``FALSE_ANSWER``
    prompt: str
    answer: str


@dataclass(frozen=True)
class Icd:
    """Coefficients of icd.

    Args:
        mu: of the mean KL.
        gamma: of APP's L3, over the request's false answers.
        kinds: of the probes that are trained on.
        orders: random orders of the list in a ``list`` probe's contexts.
        most: probes of a request; the kinds take turns.
        seed: of the orders, together with the request's text.
    """

    mu: float = 0.5
    gamma: float = 0.0
    kinds: tuple[str, ...] = PROBE_KINDS
    orders: int = LEAST_ORDERS
    most: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", tuple(self.kinds))  # a params file has a list
        if not all(0 <= number < math.inf for number in (self.mu, self.gamma)):
            raise ValueError(f"icd's mu and gamma are finite numbers from 0 on: {self}")
        counts = (self.orders, self.most, self.seed)
        if not all(isinstance(count, int) and count >= 0 for count in counts):
            raise ValueError(f"icd's orders, most and seed are whole numbers from 0 on: {self}")
        if unknown_kinds := [kind for kind in self.kinds if kind not in PROBE_KINDS]:
            raise ValueError(f"icd has no kind {unknown_kinds[0]!r}: {', '.join(PROBE_KINDS)}")
        if self.orders < LEAST_ORDERS:
            raise ValueError(f"icd's orders must be at least {LEAST_ORDERS}, not {self.orders}")

    @property
    def inert(self) -> bool:
        """Whether it adds nothing to any loss."""
        return not (self.mu or self.gamma)

    def probes(self, request: EditRequest) -> tuple[TrainingProbe, ...]:
        """The probes of a request that are trained on: at most ``most``, its kinds in turn."""
        if not self.mu:
            return ()
        of_request = [*self._list_probes(request), *request.probes]
        by_kind = [[probe for probe in of_request if probe.kind == kind] for kind in self.kinds]
        longest = max(map(len, by_kind), default=0)
        in_turn = []
        for number in range(longest):
            in_turn += [probes[number] for probes in by_kind if number < len(probes)]
        return tuple(in_turn[: self.most])

    def false_answers(self, request: EditRequest) -> tuple[str, ...]:
        """The false answers that are kept down."""
        return request.false if self.gamma else ()

    def trained(self, request: EditRequest) -> list[TrainedText]:
        """Every text of a request that the objective reads in addition to the target's, subject filled in."""
        texts = [
            TrainedText(probe.kind, probe.text(request.subject), probe.answer)
            for probe in self.probes(request)
        ]
        texts += [
            TrainedText(FALSE_ANSWER, request.text, answer)
            for answer in self.false_answers(request)
        ]
        return texts

    def total(self, divergence: Tensor, kept_down: Tensor) -> Tensor:
        """mu times the mean KL, and gamma L3."""
        return self.mu * divergence + self.gamma * kept_down

    def _list_probes(self, request: EditRequest) -> list[TrainingProbe]:
        from helpers.editing.request import TrainingProbe

        if not request.correct:
            return []
        contexts = list_contexts(request, self.orders, self.seed)
        return [
            TrainingProbe("list", request.prompt, answer, contexts) for answer in request.correct
        ]


def list_contexts(request: EditRequest, orders: int, seed: int) -> tuple[str, ...]:
    """Statements of all correct answers with the target, each in another random order."""
    import numpy as np

    from helpers.models.tokens import separator_after

    generator = np.random.default_rng([seed, zlib.crc32(request.text.encode())])
    answers = [*request.correct, request.target]
    statements = []
    for _ in range(orders):
        *first_answers, last_answer = (answers[i] for i in generator.permutation(len(answers)))
        listed = f"{', '.join(first_answers)} and {last_answer}"
        statements.append(f"{request.text}{separator_after(request.text)}{listed}.")
    return tuple(statements)


class ScoredTexts:
    """What a benchmark scores, as far as a training probe could be among it."""

    def __init__(self, asked: Iterable[tuple[str, Sequence[str]]]) -> None:
        """``asked`` are prompts, each with its answers."""
        self._answers_by_prompt: dict[str, set[str]] = {}
        for prompt, answers in asked:
            names = self._answers_by_prompt.setdefault(comparable(prompt), set())
            names.update(map(comparable, answers))

    def check_unscored(self, icd: Icd, request: EditRequest) -> None:
        """Refuse a request of which a text that trains is one that scores.

        A chain's prompt and a near one must not be asked at all. An answer of the list, or a false one, must
        not be scored after any prompt about the subject.

        Raises:
            RequestError: names the record and the text.
        """
        from helpers.editing.request import RequestError

        names_about_subject = self._names_about(request.subject)
        for text in icd.trained(request):
            if text.kind in ("list", FALSE_ANSWER):
                is_scored = comparable(text.answer) in names_about_subject
            else:
                is_scored = comparable(text.prompt) in self._answers_by_prompt
            if is_scored:
                raise RequestError(
                    f"record {request.record or request.text!r}: icd trains on"
                    f" {f'{text.prompt} {text.answer}'!r:.80}, which is scored; set"
                    " shown_half: true (for graphs also chain as the only one of icd's kinds), or hand it"
                    " other probes"
                )

    def _names_about(self, subject: str) -> set[str]:
        """All answers that are scored after a prompt that names the subject."""
        from helpers.editing.demonstrations import names_one

        return {
            name
            for prompt, names in self._answers_by_prompt.items()
            if names_one([prompt], [subject])
            for name in names
        }


def divergences(teacher: Tensor, log_probabilities: Tensor, excluded_tokens: Tensor) -> Tensor:
    """KL(teacher || model) at each position [n].

    Args:
        teacher: probabilities [n, vocabulary], without the excluded tokens.
        log_probabilities: of the model at the same positions [n, vocabulary].
        excluded_tokens: the token that counts for neither [n]; -1: none.
    """
    import torch

    tokens = torch.arange(log_probabilities.shape[-1], device=log_probabilities.device)
    is_excluded = tokens == excluded_tokens[:, None]  # [n, vocabulary]
    remaining = log_probabilities.masked_fill(is_excluded, -torch.inf).log_softmax(-1)
    remaining = remaining.masked_fill(is_excluded, 0.0)  # where the teacher is 0 as well
    return (torch.xlogy(teacher, teacher) - teacher * remaining).sum(-1)
