"""Products of bf16 in a float32 model: only the network's, both ways, under a name of their own."""

from __future__ import annotations

import pytest
import torch

from helpers import models
from helpers.models import products
from helpers.models.architectures import ModelError
from helpers.models.products import (
    BF16_PRODUCTS,
    check_bf16_products,
    exact_products,
    with_bf16_products,
)
from helpers.models.shapes import random_model
from tests.conftest import TINY


def test_both_products_are_of_rounded_factors_and_no_other_is():
    with pytest.MonkeyPatch.context() as patch:
        seen = []
        settings = torch.backends.mkldnn.matmul
        plain = torch.nn.functional.linear

        def linear(*arguments):
            seen.append(settings.fp32_precision)
            return plain(*arguments)

        patch.setattr(torch.nn.functional, "linear", linear)
        before = settings.fp32_precision
        network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64, bias=False))
        network.requires_grad_(False)
        states = torch.randn(32, 64, generator=torch.Generator().manual_seed(0), requires_grad=True)
        exact = network(states)
        (exact_gradient,) = torch.autograd.grad(exact.square().sum(), states)
        with_bf16_products(network)
        seen.clear()
        rounded = network(states)
        (gradient,) = torch.autograd.grad(rounded.square().sum(), states)
        with exact_products():
            torch.testing.assert_close(network(states), exact)
        assert seen == ["bf16", "bf16", before, before]
        assert settings.fp32_precision == before
    for ours, theirs in ((rounded, exact), (gradient, exact_gradient)):
        assert (ours - theirs).norm() < 0.02 * theirs.norm()


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_the_model_keeps_its_weights_and_is_named(tmp_path, architecture, monkeypatch):
    monkeypatch.setattr(products.torch.cpu, "get_capabilities", dict)
    made = random_model(TINY[architecture], seed=0, dtype=torch.float32, device="cpu")
    for part in made:
        part.save_pretrained(tmp_path)
    full = models.load(tmp_path)
    rounded = models.load(tmp_path, dtype=BF16_PRODUCTS)
    assert (rounded.dtype, rounded.fingerprint) == (torch.float32, full.fingerprint)
    assert full.identity["dtype"] == "float32"
    assert rounded.identity == full.identity | {"dtype": BF16_PRODUCTS}


def test_where_there_are_none(monkeypatch):
    with pytest.raises(ModelError, match="take 'bfloat16' on cuda"):
        check_bf16_products("cuda")
    monkeypatch.setattr(products.torch.cpu, "get_capabilities", lambda: {"avx512_bf16": False})
    with pytest.raises(ModelError, match="take dtype 'float32'"):
        check_bf16_products("cpu")
