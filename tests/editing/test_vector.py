"""The optimised vector against a plain loop: one edit, whole sequences, the model's own forward."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from helpers.editing import editor as editor_module
from helpers.editing.app import App
from helpers.editing.contexts import ContextTemplates
from helpers.editing.presets import VectorHyperparameters
from helpers.editing.request import EditRequest
from helpers.editing.rows import TARGETS, edit_row, weighted_targets
from helpers.editing.vector import Vector, VectorEditor
from helpers.models import LanguageModel
from helpers.models.tokens import SubjectPrompt, answer_ids, subject_prompt

CONTEXTS = ContextTemplates((("{}", "The sea. {}"),))
APP = App(0.3, 0.4, 0.5, margin=3.0)


class Optimising(VectorEditor):
    """Only the vector."""

    name = "vector"

    def __post_init__(self) -> None:
        """Without statistics."""

    def edit(self, requests):
        raise NotImplementedError


def found(language_model, requests, module, chosen, app=None) -> list[Vector]:
    return Optimising(language_model, chosen, CONTEXTS, {}, app).optimised(requests, module)


def settings(**more) -> VectorHyperparameters:
    """Every term weighs, and the clamp is narrow."""
    values = {
        "layers": (1,),
        "v_num_grad_steps": 7,
        "v_lr": 2.0,
        "v_weight_decay": 0.5,
        "clamp_norm_factor": 0.8,
        "kl_factor": 0.7,
        "context_template_length_params": (),
        "stop_threshold": 0.0,
    }
    return VectorHyperparameters(**{**values, **more})


@dataclass
class Plain:
    """One edit, its vector added at the subject's last token of every sequence."""

    language_model: LanguageModel
    request: EditRequest
    module: str

    def __post_init__(self) -> None:
        self.delta = torch.zeros(self.language_model.layout.hidden_size, requires_grad=True)
        self.initial = torch.empty(0)
        texts = [t.replace("{}", self.request.prompt) for t in CONTEXTS.templates]
        self.prompts = [self._prompt(text) for text in texts]

    def _prompt(self, text: str) -> SubjectPrompt:
        return subject_prompt(self.language_model, text, self.request.subject)

    def log_probabilities(self, prompt: SubjectPrompt, answer: tuple[int, ...] = ()) -> Tensor:
        """[tokens, vocabulary] of the prompt with the answer after it."""

        def add(module, inputs, output):
            hidden = output[0] if isinstance(output, tuple) else output
            if not self.initial.numel():
                self.initial = hidden[0, prompt.subject_last].detach()
            edited = hidden.clone()
            edited[0, prompt.subject_last] += self.delta
            return (edited, *output[1:]) if isinstance(output, tuple) else edited

        handle = self.language_model.module(self.module).register_forward_hook(add)
        ids = torch.tensor([[*prompt.ids, *answer]])
        logits = self.language_model.model(input_ids=ids).logits[0]
        handle.remove()
        return logits.log_softmax(-1)

    def score(self, prompt: SubjectPrompt, text: str) -> Tensor:
        """Mean log-probability of the answer's tokens."""
        answer = answer_ids(self.language_model, text)
        scores = self.log_probabilities(prompt, answer)[len(prompt.ids) - 1 : -1]
        return scores.gather(1, torch.tensor(answer)[:, None]).mean()

    def nll(self) -> Tensor:
        return -torch.stack([self.score(p, self.request.target) for p in self.prompts]).mean()

    def at_subject(self) -> Tensor:
        """The distribution after the subject's last token in "<subject> is a"."""
        prompt = self._prompt("{} is a")
        return self.log_probabilities(prompt)[prompt.subject_last]

    def answers(self) -> tuple[list[Tensor], list[Tensor]]:
        correct, false = (
            [self.score(self.prompts[0], text) for text in texts]
            for texts in (self.request.correct, self.request.false)
        )
        return correct, false


def app_of(now: tuple[list[Tensor], list[Tensor]], before: tuple[list[Tensor], list[Tensor]]):
    (correct, false), (correct_before, false_before) = now, before
    apart = [(APP.margin - c + f).relu() for c in correct for f in false]
    sunk = [(b - c).relu() for c, b in zip(correct, correct_before, strict=True)]
    risen = [(f - b).relu() for f, b in zip(false, false_before, strict=True)]
    terms = (torch.stack(part).mean() for part in (apart, sunk, risen))
    return sum(w * t for w, t in zip((APP.alpha, APP.beta, APP.gamma), terms, strict=True))


def plain_vector(language_model, request, module, chosen, app):
    """The vector, and each evaluation's terms of the loss."""
    plain = Plain(language_model, request, module)
    optimiser = torch.optim.Adam([plain.delta], lr=chosen.v_lr)
    losses = []
    for step in range(chosen.v_num_grad_steps):
        terms = {"nll": plain.nll()}
        now, answers = plain.at_subject(), plain.answers()
        if step == 0:
            before, answers_before = (
                now.detach(),
                tuple([score.detach() for score in part] for part in answers),
            )
        terms["kl"] = chosen.kl_factor * (now.exp() * (now - before)).sum()
        decay = plain.delta.norm() / plain.initial.norm().square()
        terms["weight_decay"] = chosen.v_weight_decay * decay
        if app:
            terms["app"] = app_of(answers, answers_before)
        losses.append({name: float(term.detach()) for name, term in terms.items()})
        total = sum(terms.values())
        watched = terms["nll"] if chosen.stop_on == "nll" else total
        if watched < chosen.stop_threshold or step + 1 == chosen.v_num_grad_steps:
            break
        optimiser.zero_grad()
        total.backward()
        optimiser.step()
        with torch.no_grad():
            largest = chosen.clamp_norm_factor * plain.initial.norm()
            plain.delta *= (largest / plain.delta.norm()).clamp(max=1)
    return plain.delta.detach(), plain.initial, losses


@pytest.mark.parametrize("stop_on", ["nll", "total"])
@pytest.mark.parametrize("app", [None, APP], ids=["plain", "app"])
@pytest.mark.parametrize(("architecture", "place"), [("gptj", "block"), ("llama", "mlp")])
def test_a_batch_of_vectors_equals_a_plain_loop_for_each(
    tiny, requests, architecture, place, app, stop_on
) -> None:
    """The threshold lies so that edits leave the batch at different steps."""
    language_model = tiny(architecture)
    module = getattr(language_model.layout, place)(1)
    whole = [plain_vector(language_model, r, module, settings(), app)[2] for r in requests]
    watched = [
        [terms["nll"] if stop_on == "nll" else sum(terms.values()) for terms in losses]
        for losses in whole
    ]
    falls = max(watched, key=lambda losses: losses[0] - min(losses))
    threshold = (falls[0] + min(falls)) / 2
    chosen = settings(stop_on=stop_on, stop_threshold=threshold)
    vectors = found(language_model, requests, module, chosen, app)
    bitten = []
    for request, vector in zip(requests, vectors, strict=True):
        delta, initial, losses = plain_vector(language_model, request, module, chosen, app)
        torch.testing.assert_close(vector.initial, initial, rtol=1e-4, atol=1e-4)
        assert vector.steps == len(losses) - 1
        for noted, expected in zip(vector.losses, losses, strict=True):
            assert noted == pytest.approx(expected, rel=1e-3, abs=1e-3)
        torch.testing.assert_close(vector.delta, delta, rtol=1e-2, atol=1e-2)
        bitten.append(delta.norm() > 0.99 * chosen.clamp_norm_factor * initial.norm())
    assert len({vector.steps for vector in vectors}) > 1
    assert any(bitten)


def test_a_step_waits_for_the_device_once(tiny, requests, monkeypatch):
    """All that depends on the rows' shapes alone is made before the first step."""
    language_model = tiny("llama")
    monkeypatch.setattr(editor_module, "token_batches", lambda lengths, *_: [range(len(lengths))])

    def operations(steps: int) -> Counter[str]:
        with Counted() as counted:
            module = language_model.layout.mlp(1)
            found(language_model, requests, module, settings(v_num_grad_steps=steps), APP)
        return counted.names

    of_a_step = operations(4) - operations(3)
    waits = ("unique", "nonzero", "_local_scalar_dense", "lift_fresh", "bitwise_not")
    assert not [name for name in of_a_step if any(word in name for word in waits)]
    blocks = language_model.layout.blocks - 1
    assert of_a_step["aten::cat"] <= 6 * blocks  # constant keys and values are not copied first


class Counted(TorchDispatchMode):
    """Counts the operations that reach a device."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.names[operation.name()] += 1
        return operation(*args, **(kwargs or {}))


# A request with further prompts: one vector for all of them.
FRIEND, HOME = ("{}'s friend is", "Bo"), ("{} lives in", "Oslo")


def test_the_loss_is_the_mean_over_the_questions(tiny):
    language_model = tiny("llama")
    row = edit_row(language_model, EditRequest("Ada", *HOME, further=(FRIEND,)), contexts=CONTEXTS)
    assert sum(p.weight for p in row.target) == pytest.approx(1)
    alone = [
        edit_row(language_model, EditRequest("Ada", *question), contexts=CONTEXTS)
        for question in (HOME, FRIEND)
    ]
    assert len(row.target) == sum(len(each.target) for each in alone)
    halves = sorted(p.weight / 2 for each in alone for p in each.target)
    assert sorted(p.weight for p in row.target) == pytest.approx(halves)


def test_weights_of_each_choice_of_targets():
    request = EditRequest("Mars", "{} is near", "Venus", correct=("Earth", "Ceres", "Vesta"))
    found = {targets: dict(weighted_targets(request, targets)) for targets in TARGETS}
    assert found["new"] == {"Venus": 1}
    assert found["all"] == dict.fromkeys(("Venus", "Earth", "Ceres", "Vesta"), 1 / 4)
    assert found["all-sum"] == {"Venus": 1} | dict.fromkeys(("Earth", "Ceres", "Vesta"), 1 / 3)
    for targets in TARGETS:
        assert weighted_targets(EditRequest("Mars", "{} is", "Venus"), targets) == [("Venus", 1)]
