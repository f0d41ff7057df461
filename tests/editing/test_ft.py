"""FT: its bound, its stop, its loss and its memory; what all editors share is in ``test_contract``."""

from __future__ import annotations

import pytest
import torch

from helpers.editing.interventions import Dense


@pytest.mark.parametrize("architecture", ["gpt2", "gptj", "llama"])
def test_the_change_is_dense_within_its_bound_and_trains_the_bias(
    tiny, make_editor, requests, architecture
) -> None:
    model = tiny(architecture)
    (update,) = make_editor("ft-l", model, norm_constraint=0.02).edit(requests[:1])
    ((module, delta),) = update.items()
    assert module == model.layout.mlp_out(1)
    assert isinstance(delta, Dense)
    assert float(delta.matrix.abs().max()) == pytest.approx(0.02)
    assert torch.linalg.matrix_rank(delta.dense()) > 8  # elementwise steps have no low rank
    has_bias = model.module(module).bias is not None
    assert (delta.bias is not None) == has_bias == (architecture != "llama")
    if delta.bias is not None:
        assert 0 < float(delta.bias.abs().max()) <= 0.02 + 1e-9
    (free,) = make_editor("ft-l", model).edit(requests[:1])
    assert float(free[module].dense().abs().max()) > 0.02


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_each_edit_stops_by_itself(tiny, make_editor, requests, architecture) -> None:
    """Losses apart from the start: a threshold between them stops one edit only, for good."""
    model = tiny(architecture)

    def edited(chosen, **more):
        return make_editor("ft-l", model, **{"num_steps": 8, **more}).edit(chosen)

    long = edited(requests)
    lowest = [min(t["nll"] for t in update.diagnostics["losses"]) for update in long]
    threshold = 1.05 * sorted(lowest)[1]
    stopped = edited(requests, stop_threshold=threshold)
    steps = [update.diagnostics["steps"] for update in stopped]
    assert min(steps) < max(steps) == 8
    for update, full, taken in zip(stopped, long, steps, strict=True):
        losses = [t["nll"] for t in update.diagnostics["losses"]]
        assert taken == 8 or losses[-1] < threshold
        expected = [t["nll"] for t in full.diagnostics["losses"][: len(losses)]]
        assert losses == pytest.approx(expected, abs=1e-3)
    early = steps.index(min(steps))
    (alone,) = edited([requests[early]], num_steps=steps[early])
    module = model.layout.mlp_out(1)
    torch.testing.assert_close(
        stopped[early][module].dense(), alone[module].dense(), rtol=0, atol=2e-3
    )
