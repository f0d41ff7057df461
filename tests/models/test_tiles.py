"""Attention by tiles equals attention under the dense mask, forward and gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers.models import tiles
from helpers.models.forest import Forest, pack, padded
from helpers.models.forward import hidden_states, prefill
from helpers.models.tiles import TILED, Tiles

ARCHITECTURES = ["gpt2", "llama", "qwen2", "mistral", "gemma3"]


def bushes(seed: int = 0, rows: int = 3) -> list[Forest]:
    """Rows of unlike length: a stem of 30 tokens, branches on it, and trees of their own."""
    random = np.random.default_rng(seed)
    forests = [Forest() for _ in range(rows)]
    for row, forest in enumerate(forests):
        stem = [int(token) for token in random.integers(3, 90, 30)]
        for _ in range(12 + 4 * row):
            branch = [int(token) for token in random.integers(3, 90, random.integers(1, 8))]
            forest.add([*stem, *branch])
            forest.add(branch[::-1])
    return forests


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("constant", [0, 30])
def test_equal_to_the_dense_mask(tiny, architecture, constant, monkeypatch):
    model = tiny(architecture)
    packed = pack(bushes(), model)
    head = [part[:, :constant] for part in (packed.ids, packed.positions, packed.visible)]
    tail = [part[:, constant:] for part in (packed.ids, packed.positions, packed.visible)]
    head[2] = head[2][:, :, :constant]
    past = prefill(model, *head)[1] if constant else None
    found = {}
    for way in ("tiled", "dense"):
        if way == "dense":
            monkeypatch.setattr(Tiles, "of", lambda visible: None)
        embedding = model.module(model.layout.architecture.embedding)
        noise = torch.zeros(*tail[0].shape, model.layout.hidden_size, requires_grad=True)
        hook = embedding.register_forward_hook(lambda _, __, output, noise=noise: output + noise)
        try:
            hidden = hidden_states(model, *tail, past)
        finally:
            hook.remove()
        weights = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(0))
        (gradient,) = torch.autograd.grad((hidden * weights).sum(), noise)
        found[way] = hidden, gradient
    for tiled, dense in zip(found["tiled"], found["dense"], strict=True):
        assert (tiled - dense).norm() < 1e-4 * dense.norm()


def test_packed_rows_take_tiles_and_plain_ones_do_not(tiny):
    packed = pack(bushes(), tiny("llama"))
    assert Tiles.of(packed.visible) is not None
    assert Tiles.of(padded(tiny("llama"), [[1] * 60, [1] * 50]).visible) is None
    assert tiny("llama").network.config._attn_implementation == TILED
    assert tiny("gptj").network.config._attn_implementation == "eager"


@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9), min_size=1, max_size=9),
    st.integers(0, 3),
    st.sampled_from(tiles.WIDTHS),
)
def test_a_tile_holds_all_its_queries_see(sequences, cut, width):
    forest = Forest()
    for sequence in sequences:
        forest.add(sequence)
    cut = min(cut, len(forest) - 1)
    visible = torch.from_numpy(forest.visible()[None, cut:])
    found = Tiles._cut(visible, width)
    part, tiled = found.visible(visible), torch.zeros_like(visible[0])
    for query in range(len(forest) - cut):
        tile, place = divmod(query, width)
        tiled[query, found.keys[0, tile]] = part[tile, place]
    assert torch.equal(tiled, visible[0])
    assert part.sum() == visible.sum()
