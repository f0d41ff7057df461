"""RECT keeps the share it promises; PRUNE equals the full decomposition, or does nothing."""

from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.editing.interventions import Dense, LowRank
from helpers.editing.rect_prune import keep_largest, restrain
from helpers.editing.weight_edit import WeightEdit


def normal(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@given(seed=st.integers(0, 10_000), share=st.floats(0.05, 1.0), rank=st.integers(1, 3))
@settings(max_examples=30)
def test_rect_keeps_the_largest_relative_changes(seed, share, rank) -> None:
    delta, weight = LowRank(normal(seed, 9, rank), normal(seed + 1, 11, rank)), normal(7, 9, 11)
    kept = keep_largest(delta, weight, share).dense()
    ratio = (delta.dense() / (weight + 1e-8)).abs()
    alive = kept != 0
    assert int(alive.sum()) == 99 - int((1 - share) * 99)
    assert torch.equal(kept[alive], delta.dense()[alive])
    assert alive.all() or ratio[alive].min() >= ratio[~alive].max()


def test_rect_by_hand() -> None:
    delta = Dense(torch.tensor([[1.0, 1.0], [3.0, 4.0]]), torch.ones(2))
    weight = torch.tensor([[1.0, 10.0], [1.0, 100.0]])  # ratios 1, 0.1, 3, 0.04
    kept = keep_largest(delta, weight, 0.5)
    assert kept.dense().tolist() == [[1.0, 0.0], [3.0, 0.0]]
    assert kept.bias is not None


def test_rect_compares_an_edit_with_the_weights_it_was_made_upon(
    tiny, make_editor, requests
) -> None:
    """The unedited ones, or in a sequence those with the earlier edits in them."""
    model = tiny("llama")
    rect = make_editor("rect", model, base="rome", v_num_grad_steps=3)
    rome = make_editor("rome", model, v_num_grad_steps=3)
    ((name, delta),) = rome.edit(requests[:1])[0].items()
    weight = model.weight(name)
    expected = keep_largest(delta, weight, 0.4).dense()
    for masked in (rect.edit(requests[:1])[0], rect.edit_jointly(requests[:1])):
        torch.testing.assert_close(masked[name].dense(), expected)
    earlier = WeightEdit({name: Dense(3 * weight.flip(1))})
    (second,) = rect.edit_after(earlier, requests[1:2]).values()
    (whole,) = rome.edit_after(earlier, requests[1:2]).values()
    expected = keep_largest(whole, weight + earlier[name].dense(), 0.4).dense()
    torch.testing.assert_close(second.dense(), expected)


def by_full_decomposition(delta: torch.Tensor, limit: float, base: float) -> torch.Tensor:
    left, values, right = torch.linalg.svd(delta.double(), full_matrices=False)
    drawn_in = values.log() / math.log(base) - math.log(limit) / math.log(base) + limit
    return left @ torch.diag(torch.where(values >= limit, drawn_in, values)) @ right


@given(
    seed=st.integers(0, 10_000),
    rank=st.integers(1, 12),
    limit=st.floats(0.5, 20.0),
    base=st.sampled_from([math.e, 2.0, 1.5, 1.2]),
)
@settings(max_examples=40)
def test_prune_equals_the_full_decomposition(seed, rank, limit, base) -> None:
    delta = LowRank(normal(seed, 8, rank), normal(seed + 1, 10, rank))
    expected = by_full_decomposition(delta.dense(), limit, base).float()
    for one in (delta, Dense(delta.dense())):
        restrained, count = restrain(one, limit, base)
        torch.testing.assert_close(restrained.dense(), expected, rtol=1e-4, atol=1e-4)
        assert count == int((torch.linalg.svdvals(delta.dense()) >= limit).sum())


def test_prune_restrains_the_sum_of_a_sequence_once(tiny, make_editor, requests) -> None:
    model = tiny("llama")
    plain = list(make_editor("memit", model).edit_sequentially(requests))
    unchanged = list(make_editor("prune", model).edit_sequentially(requests))
    for one, other in zip(plain, unchanged, strict=True):  # far below s_max
        for module in one:
            torch.testing.assert_close(one[module].dense(), other[module].dense())
    editor = make_editor("prune", model)
    step = editor.edit_after(plain[0], requests[1:2])  # a step is not restrained
    for module, delta in plain[0].plus(step).items():
        torch.testing.assert_close(delta.dense(), plain[1][module].dense())
    limit = 0.5 * min(
        float(torch.linalg.matrix_norm(delta.dense(), 2)) for delta in plain[-1].values()
    )
    editor._largest = dict.fromkeys(plain[-1], limit)
    added = make_editor("prune", model, prune_compat="added")
    added._largest = dict(editor._largest)
    *_, last = editor.edit_sequentially(requests)
    *_, twice = added.edit_sequentially(requests)
    for module, delta in plain[-1].items():
        expected = by_full_decomposition(delta.dense(), limit, math.e).float()
        torch.testing.assert_close(last[module].dense(), expected, rtol=1e-4, atol=1e-5)
        total = expected + delta.dense()
        torch.testing.assert_close(twice[module].dense(), total, rtol=1e-4, atol=1e-5)
        assert last.diagnostics["prune"][module]["restrained"] >= 1
