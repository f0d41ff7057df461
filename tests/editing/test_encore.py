"""ENCORE: its solve against the equation as printed, and where the optimisation of its vector ends."""

from __future__ import annotations

import pytest
import torch

from helpers.editing.batch import EditBatch
from helpers.editing.key_history import KeyHistory
from helpers.editing.request import EditRequest
from helpers.editing.rows import EditRow
from helpers.models.tokens import answer_ids, separator_after
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


# Its target is one token, read where the vector is added: a random model can be brought to say it.
AT_THE_END = EditRequest("火星", "{}", "a")


def is_top(lm, request: EditRequest, layer: int, delta: torch.Tensor) -> bool:
    """By transformers alone: every token of the target is the argmax, in every context."""
    target = answer_ids(lm, request.target, separator_after(request.text))
    for template in CONTEXTS:
        prompt = lm.tokenizer(template.replace("{}", request.text))["input_ids"]

        def add(module, arguments, output, length=len(prompt)):  # noqa: B008
            changed = (output[0] if isinstance(output, tuple) else output).clone()
            changed[:, length - 1] += delta
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
    block = lm.layout.block(3)
    settings = {"clamp_norm_factor": 100.0, "stop_threshold": -1.0, "v_lr": 2.0}

    def vectors_after(evaluations: int, requests, **more):
        editor = make_editor("encore", lm, v_num_grad_steps=evaluations, **settings, **more)
        return editor.optimised(requests, block)

    evaluations_at_top = []
    for step in range(12):
        (vector,) = vectors_after(step + 1, [AT_THE_END], top_evaluations=None)
        assert vector.steps == step
        if is_top(lm, AT_THE_END, 3, vector.delta):
            evaluations_at_top.append(step)
    assert evaluations_at_top[0] > 0  # it is not top from the beginning
    stopped, other = vectors_after(12, [AT_THE_END, requests[0]], top_evaluations=top_evaluations)
    assert stopped.steps == evaluations_at_top[top_evaluations - 1] < 11
    assert other.steps == 11  # whose target never is
    (expected,) = vectors_after(stopped.steps + 1, [AT_THE_END], top_evaluations=None)
    torch.testing.assert_close(stopped.delta, expected.delta, rtol=1e-3, atol=1e-4)


def test_every_token_counts_in_every_prompt(tiny) -> None:
    """Rows whose targets are the model's own greedy tokens, but for one of them."""
    lm = tiny("llama")
    prompts = [tuple(lm.tokenizer(text)["input_ids"]) for text in ("Mars is", "The sea. Mars is")]

    def greedy(prompt, count=2):
        ids = list(prompt)
        for _ in range(count):
            with torch.no_grad():
                ids.append(int(lm.network(torch.tensor([ids])).logits[0, -1].argmax()))
        return tuple(ids[len(prompt) :])

    targets = [greedy(prompt) for prompt in prompts]
    rows = []
    for wrong in (None, (0, 0), (0, 1), (1, 0), (1, 1)):  # of which prompt, which token
        row = EditRow("row")
        for number, (prompt, target) in enumerate(zip(prompts, targets, strict=True)):
            ids = list(target)
            if wrong is not None and wrong[0] == number:
                ids[wrong[1]] += 1
            row.target += row.predict(prompt, ids)
        row.correct.append(row.predict(prompts[0], [1, 2]))  # whatever other answers are
        rows.append(row)
    batch = EditBatch(lm, rows, 1)
    hidden = batch.hidden()
    batch.read(hidden)
    assert batch.targets_are_top(hidden).tolist() == [True, False, False, False, False]
