"""Hooks on modules by name, and texts padded into one batch."""

from __future__ import annotations

import pytest
import torch

from helpers.models.forest import padded
from helpers.models.forward import hidden_states
from helpers.models.hooks import input_hooks, output_hooks, record

TEXTS = [[5, 6, 7, 8], [9], [10, 11]]


def run(model, texts=TEXTS):
    batch = padded(model, texts)
    with torch.no_grad():
        return batch.last(hidden_states(model, batch.ids, batch.positions, batch.visible))


@pytest.mark.parametrize("architecture", ["gpt2", "gptj", "llama", "gemma3"])
def test_padded_texts_end_as_they_do_alone(tiny, architecture):
    model = tiny(architecture)
    alone = torch.cat([run(model, [text]) for text in TEXTS])
    torch.testing.assert_close(run(model), alone, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])  # blocks return tuples, and tensors
def test_hooks_see_and_replace_inputs_and_outputs(tiny, architecture):
    model = tiny(architecture)
    block = model.layout.block(1)
    seen = {}

    def look(*tensors):
        seen[len(tensors)] = [tensor.clone() for tensor in tensors]

    with input_hooks(model, {block: look}), output_hooks(model, {block: look}):
        before = run(model)
    assert torch.equal(before, run(model))
    (entering,), (received, output) = seen[1], seen[2]
    assert torch.equal(entering, received)
    with input_hooks(model, {block: lambda x: 2 * x}):
        assert not torch.allclose(run(model), before, atol=1e-3)
    with output_hooks(model, {block: lambda x, _: x}):  # a block that does nothing
        skipped = run(model)
    with (
        output_hooks(model, {block: lambda x, y: x + y}),
        output_hooks(model, {block: lambda _, y: y - output}),  # after the one outside it
    ):
        torch.testing.assert_close(run(model), skipped, atol=1e-4, rtol=1e-3)


def test_recording_ends_the_pass_and_hooks_are_taken_off(tiny):
    model = tiny("llama")
    name = model.layout.mlp_out(0)
    module = model.module(name)
    with torch.no_grad(), record(model, inputs=[name]) as inputs:
        run(model)
    with record(model, outputs=[name]) as outputs:
        run(model)
    torch.testing.assert_close(outputs[name], module(inputs[name]))

    def fail(*_):
        raise RuntimeError("on purpose")

    for hooks in (input_hooks, output_hooks):
        with pytest.raises(RuntimeError, match="on purpose"), hooks(model, {name: fail}):
            run(model)
    assert not module._forward_hooks
    assert not module._forward_pre_hooks
