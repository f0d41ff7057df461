"""Log-probabilities of chosen tokens and whole distributions, and their gradient."""

from __future__ import annotations

import pytest
import torch

from helpers.models.forward import vocabulary_scores

PLACES = torch.tensor([0, 0, 2, 1, 0])
TOKENS = torch.tensor([3, 1, 4, 0, 3])  # place 0 predicts token 3 twice, as two answers may
WHOLE = torch.tensor([2, 3, 2])  # place 2 is read both ways, and twice


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma3"])
def test_values_and_gradient_equal_those_of_log_softmax(tiny, family) -> None:
    model = tiny(family)
    size = model.layout.hidden_size
    hidden = torch.randn(4, size, generator=torch.Generator().manual_seed(0), requires_grad=True)
    plain = model.network.get_output_embeddings()(hidden).log_softmax(-1)
    plain_parts = plain[PLACES, TOKENS], plain[WHOLE]
    parts = vocabulary_scores(model, hidden, PLACES, TOKENS, WHOLE)
    alone, _ = vocabulary_scores(model, hidden, PLACES, TOKENS)
    weights = torch.arange(1.0, 6.0)
    gradients = []
    for one, other in (parts, plain_parts):
        total = (weights * one).sum() + (other.exp() * other).sum()
        gradients += torch.autograd.grad(total, hidden, retain_graph=True)
    for mine, expected in zip((*parts, alone), (*plain_parts, plain_parts[0]), strict=True):
        torch.testing.assert_close(mine, expected)
    torch.testing.assert_close(*gradients)
