"""Residuals handed back through a norm arrive where they were meant to, or as near as can be."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from helpers.editing.contexts import read_at_subjects
from helpers.editing.memit import before_norm

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


def test_nothing_wanted_is_nothing_added(norm, outputs) -> None:
    added = before_norm(norm, outputs, torch.zeros_like(outputs))
    torch.testing.assert_close(added, torch.zeros_like(added), atol=1e-5, rtol=0)


def test_what_the_norm_can_give_is_reached(norm, outputs) -> None:
    goal = torch.randn(SIZE, COLUMNS, generator=torch.Generator().manual_seed(2))
    residuals = leaving(norm, goal) - leaving(norm, outputs)
    reached = leaving(norm, outputs.double() + before_norm(norm, outputs, residuals))
    torch.testing.assert_close(reached, leaving(norm, goal), atol=1e-3, rtol=1e-3)


def test_otherwise_nothing_the_norm_can_give_is_nearer(norm, outputs) -> None:
    generator = torch.Generator().manual_seed(3)
    residuals = 50 * torch.randn(SIZE, COLUMNS, generator=generator)
    wanted = leaving(norm, outputs) + residuals
    best = outputs.double() + before_norm(norm, outputs, residuals)
    distance = (leaving(norm, best) - wanted).norm(dim=0)
    assert bool((distance < residuals.norm(dim=0)).all())  # nearer than doing nothing
    for scale in (0.01, 0.1, 1.0):
        for _ in range(50):
            near = best + scale * torch.randn(SIZE, COLUMNS, generator=generator)
            assert bool(((leaving(norm, near) - wanted).norm(dim=0) >= distance - 1e-4).all())


def test_the_length_before_the_norm_stays(norm, outputs) -> None:
    added = before_norm(norm, outputs, 50 * torch.ones_like(outputs))
    torch.testing.assert_close((outputs.double() + added).norm(dim=0), outputs.double().norm(dim=0))


@pytest.mark.parametrize("name", ["memit", "alphaedit"])
def test_on_gemma_the_wanted_value_comes_nearer(tiny, make_editor, requests, name) -> None:
    language_model = tiny("gemma3")
    editor = make_editor(name, language_model)
    block = language_model.layout.block(editor.hyperparameters.layers[-1])
    vectors = editor.optimised(requests, block)
    prompts = editor.prompts(requests)
    updates = editor.edit(requests)
    after = read_at_subjects(language_model, prompts, outputs=[block], updates=updates)
    for vector, values in zip(vectors, after[block], strict=True):
        missing = (vector.initial + vector.delta - values[0]).norm()
        assert missing < vector.delta.norm()


def test_results_on_gemma_are_not_mistaken_for_earlier_ones(tiny, make_editor) -> None:
    assert "normed" in make_editor("memit", tiny("gemma3")).settings()["versions"]
    assert "normed" not in make_editor("memit", tiny("llama")).settings()["versions"]
