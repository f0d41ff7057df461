"""ENCORE: its solve against the equation as printed, and where the optimisation of its vector ends."""

from __future__ import annotations

import pytest
import torch

from helpers.editing.contexts import ContextTemplates
from helpers.editing.key_history import KeyHistory
from helpers.editing.request import EditRequest
from helpers.models.tokens import answer_ids
from tests.editing.conftest import CONTEXTS

STEPS = {"v_num_grad_steps": 4}


def test_without_its_two_terms_it_is_memit_that_accumulates_to_the_bit(
    tiny, make_editor, requests
) -> None:
    lm = tiny("llama")
    encore = make_editor("encore", lm, update_norm_lambda=0.0, top_evaluations=None, **STEPS)
    accumulated = make_editor("memit-seq", lm, **STEPS)
    for one, other in zip(
        encore.edit_sequentially(requests), accumulated.edit_sequentially(requests), strict=True
    ):
        assert one.keys() == other.keys() != set()
        for module_name, delta in other.items():
            assert torch.equal(one[module_name].dense(), delta.dense())
        assert one.diagnostics == other.diagnostics
    assert not encore.is_resumable
    assert "top_evaluations" not in accumulated.settings()["hyperparameters"]


def test_the_solve_is_the_equation_as_printed(tiny, make_editor) -> None:
    editor = make_editor("encore", tiny("llama"), update_norm_lambda=0.3)
    generator = torch.Generator().manual_seed(0)
    earlier, keys = torch.randn(2, 48, 4, generator=generator, dtype=torch.float64)
    residuals = torch.randn(32, 4, generator=generator, dtype=torch.float64)
    moment = editor.second_moments[1].matrix.double()
    inner = 2.0 * moment + earlier @ earlier.T + keys @ keys.T + 0.3 * torch.eye(48)
    printed = residuals @ keys.T @ torch.linalg.inv(inner)
    left, right = editor.solve_jointly(1, keys, residuals, KeyHistory({1: earlier}))
    torch.testing.assert_close(left @ right.T, printed)
    (single_left, single_right) = editor.solve_each(1, keys[:, :1], residuals[:, :1])
    inner = 2.0 * moment + keys[:, :1] @ keys[:, :1].T + 0.3 * torch.eye(48)
    printed = residuals[:, :1] @ keys[:, :1].T @ torch.linalg.inv(inner)
    torch.testing.assert_close(single_left @ single_right.T, printed)
    without = make_editor("memit-seq", tiny("llama")).solve_each(1, keys, residuals)
    with_ridge = editor.solve_each(1, keys, residuals)
    norms = [(left * right.norm(dim=0)).norm() for left, right in (with_ridge, without)]
    assert norms[0] < norms[1]  # the update is shorter


def is_top(lm, request: EditRequest, layer: int, delta: torch.Tensor) -> bool:
    """By transformers alone: every token of the target is the argmax, in every context."""
    target = answer_ids(lm, request.target)
    for template in CONTEXTS:
        before_subject = template.replace("{}", request.prompt).split("{}")[0] + request.subject
        prompt = lm.tokenizer(template.replace("{}", request.text))["input_ids"]
        subject_last = len(lm.tokenizer(before_subject)["input_ids"]) - 1

        def add(module, arguments, output, position=subject_last):
            changed = (output[0] if isinstance(output, tuple) else output).clone()
            changed[:, position] += delta
            return (changed, *output[1:]) if isinstance(output, tuple) else changed

        handle = lm.module(lm.layout.block(layer)).register_forward_hook(add)
        with handle, torch.no_grad():
            logits = lm.network(torch.tensor([[*prompt, *target[:-1]]])).logits[0]
        if logits[len(prompt) - 1 :].argmax(-1).tolist() != list(target):
            return False
    return True


@pytest.mark.parametrize("top_evaluations", [1, 3])
def test_the_vector_ends_at_the_evaluation_that_is_counted_by_hand(
    tiny, make_editor, requests, top_evaluations
) -> None:
    lm = tiny("llama")
    block = lm.layout.block(2)
    settings = {"clamp_norm_factor": 100.0, "stop_threshold": -1.0, "kl_factor": 0.0}
    (request,) = [replaced for replaced in requests if replaced.subject == "Mars"]

    def vector_after(evaluations: int, **more):
        editor = make_editor("encore", lm, v_num_grad_steps=evaluations, **settings, **more)
        (vector,) = editor.optimised([request], block)
        return vector

    tops = []
    for step in range(24):
        vector = vector_after(step + 1, top_evaluations=None)
        assert vector.steps == step
        tops.append(is_top(lm, request, 2, vector.delta))
    evaluations_at_top = [step for step, top in enumerate(tops) if top]
    assert evaluations_at_top[0] > 1  # it is not top from the beginning
    stopped = vector_after(24, top_evaluations=top_evaluations)
    assert stopped.steps == evaluations_at_top[top_evaluations - 1] < 23
    expected = vector_after(stopped.steps + 1, top_evaluations=None)
    torch.testing.assert_close(stopped.delta, expected.delta)


def test_a_target_of_two_tokens_counts_when_both_are_top(tiny, make_editor) -> None:
    lm = tiny("llama")
    request = EditRequest("Mars", "{} is a planet near", "Peru Venus")
    assert len(answer_ids(lm, request.target)) > 1
    settings = {"clamp_norm_factor": 100.0, "stop_threshold": -1.0, "v_num_grad_steps": 40}
    editor = make_editor("encore", lm, top_evaluations=1, **settings)
    editor.contexts = ContextTemplates(((CONTEXTS[0],), CONTEXTS[1:]))
    (vector,) = editor.optimised([request], lm.layout.block(2))
    if vector.steps < 39:
        assert is_top(lm, request, 2, vector.delta)
