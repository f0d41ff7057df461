"""ROME's, MEMIT's and AlphaEdit's closed forms against the formulas as printed, in fp64."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from helpers.editing.contexts import ContextTemplates, read_at_subjects
from helpers.editing.memit import AlphaEdit, KeyHistory, before_norm
from helpers.editing.moments import SecondMoment, SecondMomentError
from helpers.editing.running import under_all
from helpers.editing.vector import VectorEditor


def problem(seed: int, d: int, f: int, n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A second moment [f, f], keys [f, n] and residuals [d, n]."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    samples = normal(4 * f, f) * torch.logspace(-2, 1, f, dtype=torch.float64)
    return samples.T @ samples / len(samples), normal(f, n), normal(d, n)


def with_moment(editor, matrix: torch.Tensor):
    """The same editor with another (larger or smaller) second moment at its first layer."""
    layer = editor.hyperparameters.layers[0]
    moment = SecondMoment(matrix, 100, layer, editor.lm.fingerprint, "made up")
    parts = (editor.lm, editor.hyperparameters, editor.contexts)
    return type(editor)(*parts, {**editor.second_moments, layer: moment}), layer


SIZES = {"seed": st.integers(0, 10_000), "d": st.integers(1, 6), "n": st.integers(1, 5)}


@given(**SIZES)
@settings(max_examples=20)
def test_memit_equals_the_direct_solve(tiny, make_editor, seed, d, n) -> None:
    covariance, keys, residuals = problem(seed, d, 12, n)
    editor, layer = with_moment(make_editor("memit", tiny("llama")), covariance.float())
    weighted = editor.hyperparameters.mom2_update_weight * covariance.float().double()

    def direct(k: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
        return torch.linalg.solve(weighted + k @ k.T, k @ r.T).T

    left, right = editor.solve_jointly(layer, keys, residuals)
    torch.testing.assert_close(left @ right.T, direct(keys, residuals), rtol=1e-6, atol=1e-8)
    left, right = editor.solve_each(layer, keys, residuals)
    for i in range(n):
        alone = direct(keys[:, i : i + 1], residuals[:, i : i + 1])
        one = left[:, i : i + 1] @ right[:, i : i + 1].T
        torch.testing.assert_close(one, alone, rtol=1e-6, atol=1e-8)


@given(earlier=st.integers(0, 4), **SIZES)
@settings(max_examples=20)
def test_alphaedit_equals_the_direct_solve(tiny, make_editor, seed, d, n, earlier) -> None:
    covariance, keys, residuals = problem(seed, d, 12, n + earlier)
    known, keys, residuals = keys[:, :earlier], keys[:, earlier:], residuals[:, earlier:]
    editor, layer = with_moment(make_editor("alphaedit", tiny("llama")), covariance.float())
    values, vectors = torch.linalg.eigh(covariance.float().double())
    free = vectors[:, values < editor.hyperparameters.nullspace_threshold]
    projector = free @ free.T
    ridge = editor.hyperparameters.L2 * torch.eye(12, dtype=torch.float64)

    def direct(k: torch.Tensor, r: torch.Tensor, history: torch.Tensor) -> torch.Tensor:
        system = projector @ (k @ k.T + history @ history.T) + ridge
        return torch.linalg.solve(system, projector @ k @ r.T).T

    left, right = editor.solve_jointly(layer, keys, residuals, KeyHistory({layer: known}))
    expected = direct(keys, residuals, known)
    torch.testing.assert_close(left @ right.T, expected, rtol=1e-5, atol=1e-6)
    left, right = editor.solve_each(layer, keys, residuals)
    for i in range(n):
        alone = direct(keys[:, i : i + 1], residuals[:, i : i + 1], known[:, :0])
        one = left[:, i : i + 1] @ right[:, i : i + 1].T
        torch.testing.assert_close(one, alone, rtol=1e-5, atol=1e-6)


def moment_of(matrix: torch.Tensor) -> SecondMoment:
    return SecondMoment(matrix, 100, 1, "", "made up")


def test_null_space_is_what_lies_below_the_threshold() -> None:
    occupied = moment_of(torch.diag(torch.tensor([1.0, 0.5, 0.25, 0.01]))).occupied(0.25)
    assert occupied.shape == (4, 3)
    assert torch.equal(occupied @ occupied.T, torch.diag(torch.tensor([1.0, 1, 1, 0])).double())


def test_a_null_space_of_nothing_is_refused_and_one_of_everything_is_told() -> None:
    moment = moment_of(torch.diag(torch.tensor([0.5, 1.0, 2.0])))
    with pytest.raises(
        SecondMomentError, match=r"layer 1: .* below 0\.5 .*: raise nullspace_threshold"
    ):
        moment.occupied(0.5)
    told = (
        r"layer 1: every .* below 3 \(the largest is 2\), so nothing .*: lower nullspace_threshold"
    )
    with pytest.warns(UserWarning, match=told):
        assert moment.occupied(3).shape == (3, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert moment.occupied(3).shape == (3, 0)  # told once
        assert moment.occupied(2).shape == (3, 1)
    assert moment.unprotected(2) == ""


def test_alphaedit_notes_the_layers_in_which_it_protects_nothing(tiny, make_editor, requests):
    model = tiny("llama")
    editor = make_editor("alphaedit", model, v_num_grad_steps=1)
    threshold = editor.hyperparameters.nullspace_threshold
    moments = torch.diag(torch.linspace(0.1, 1, 48)) * threshold
    some, layer = with_moment(editor, 2 * moments)
    none, _ = with_moment(editor, moments / 2)
    module = model.layout.mlp_out(layer)
    with pytest.warns(UserWarning, match=f"layer {layer}: every direction"):
        updates = [*none.edit(requests[:1]), none.edit_jointly(requests[:1])]
    for update in updates:
        notes = update.diagnostics["layers"][module]
        assert notes["null_space_dimension"] == 48
        assert f"below {threshold:g}" in notes["warning"]
    (update,) = some.edit(requests[:1])
    assert update.diagnostics["layers"][module].keys() == {"null_space_dimension"}


def test_alphaedit_protects_no_fact_whose_edit_was_given_up(
    tiny, make_editor, requests, monkeypatch
) -> None:
    optimise = VectorEditor._optimise

    def giving_up(editor, rows, module):
        vectors = optimise(editor, rows, module)
        for row, found in zip(rows, vectors, strict=True):
            found.failure = "given up" if row.record == "b" else None
        return vectors

    monkeypatch.setattr(VectorEditor, "_optimise", giving_up)
    editor: AlphaEdit = make_editor("alphaedit", tiny("llama"), v_num_grad_steps=3)
    first, lost, last = requests
    *_, expected = editor.edit_sequentially([first, last])
    *_, found = editor.edit_sequentially([first, lost, last])
    for module in expected:
        torch.testing.assert_close(found[module].dense(), expected[module].dense())


def test_alphaedit_remembers_the_keys_of_its_run(tiny, make_editor, requests) -> None:
    """Step by step by hand: keys read again after each edit enter the next one's history."""
    model = tiny("llama")
    editor: AlphaEdit = make_editor("alphaedit", model, v_num_grad_steps=3)
    first, second = list(editor.edit_sequentially(requests[:2]))
    history: KeyHistory = {}
    with under_all(model, first):
        editor._remember(history, requests[:1])
        step = editor.edit_jointly(requests[1:2], history)
        (forgetful,) = editor.edit(requests[1:2])
    for layer in editor.hyperparameters.layers:
        module = model.layout.mlp_out(layer)
        assert history[layer].shape[1] == 1
        torch.testing.assert_close(second[module].dense(), first.plus(step)[module].dense())
        assert not torch.allclose(step[module].dense(), forgetful[module].dense(), rtol=1e-3)
        # What the first edit wrote at its key is disturbed less than without the history.
        key = history[layer].T.float()
        disturbed = step[module].contribution(key).norm() / step[module].norm()
        assert disturbed < forgetful[module].contribution(key).norm() / forgetful[module].norm()


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "gemma3"])
@pytest.mark.parametrize("name", ["rome", "r-rome"])
def test_rome_maps_its_key_to_the_optimised_value(
    tiny, make_editor, requests, architecture, name
) -> None:
    """ROME the bare prompt's key, R-ROME the averaged one; the direction has unit length."""
    model = tiny(architecture)
    editor = make_editor(name, model)
    (found,) = editor.optimised(requests[:1], model.layout.mlp(1))
    (update,) = editor.edit(requests[:1])
    module = model.layout.mlp_out(1)
    seen = read_at_subjects(model, editor.prompts(requests[:1]), inputs=[module])
    (keys,) = seen[module]
    key = keys[0] if name == "rome" else torch.tensor(editor.contexts.weights) @ keys
    with torch.no_grad():
        value = model.module(module)(key[None])[0] + update[module].contribution(key)
    torch.testing.assert_close(value, found.initial + found.delta, rtol=1e-4, atol=1e-4)
    direction = update[module].right[:, 0]
    assert float(direction.norm()) == pytest.approx(1)
    assert float(key @ direction) == pytest.approx(update.diagnostics["key_dot_direction"])


@pytest.mark.parametrize("architecture", ["llama", "granite"])
def test_memit_brings_the_stream_to_the_optimised_value(
    tiny, make_editor, requests, architecture
) -> None:
    """Of one layer and prompt, where the second moment hardly weighs; Granite halves what an MLP writes."""
    lm = tiny(architecture)
    editor = make_editor("memit", lm, layers=(2,), mom2_update_weight=1e-6)
    editor = replace(editor, contexts=ContextTemplates((("{}",),)))
    block = lm.layout.block(2)
    (found,) = editor.optimised(requests[:1], block)
    edits = editor.edit(requests[:1])
    read = read_at_subjects(
        lm, editor.prompts(requests[:1]), inputs=[], outputs=[block], edits=edits
    )
    (values,) = read[block]
    torch.testing.assert_close(values[0], found.initial + found.delta, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["memit", "alphaedit"])
def test_an_update_that_is_not_finite_is_given_up(tiny, make_editor, requests, monkeypatch, name):
    editor = make_editor(name, tiny("llama"), v_num_grad_steps=2)
    solve = type(editor).solve_each

    def spoiled(self, layer, keys, residuals):
        left, right = solve(self, layer, keys, residuals)
        left[0, 1] = float("inf")
        return left, right

    monkeypatch.setattr(type(editor), "solve_each", spoiled)
    updates = editor.edit(requests)
    assert [update.failed for update in updates] == [False, True, False]
    assert updates[1].diagnostics["failure"] == "the update is not finite"


# Residuals handed back through a norm arrive where they were meant to, or as near as can be.
SIZE, COLUMNS = 12, 5


@pytest.fixture
def norm() -> nn.Module:
    """Gains from nearly nothing to large, as Gemma 3 has them."""
    made = nn.RMSNorm(SIZE)
    with torch.no_grad():
        made.weight.copy_(torch.logspace(-3, 2.5, SIZE) * torch.tensor([1.0, -1.0] * (SIZE // 2)))
    return made


@pytest.fixture
def outputs() -> torch.Tensor:
    return torch.randn(SIZE, COLUMNS, generator=torch.Generator().manual_seed(1))


def leaving(norm: nn.Module, entering: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return norm(entering.T.float()).T.double()


def test_what_the_norm_can_give_is_reached(norm, outputs) -> None:
    goal = torch.randn(SIZE, COLUMNS, generator=torch.Generator().manual_seed(2))
    residuals = leaving(norm, goal) - leaving(norm, outputs)
    reached = leaving(norm, outputs.double() + before_norm(norm, outputs, residuals))
    torch.testing.assert_close(reached, leaving(norm, goal), atol=1e-3, rtol=1e-3)
