"""Hooks on modules by name, and texts padded into one batch."""

from __future__ import annotations

import pytest
import torch

from helpers.models.forest import padded
from helpers.models.forward import hidden_states
from helpers.models.hooks import input_hooks, output_hooks, record

TEXTS = [[5, 6, 7, 8], [9], [10, 11]]


def run(language_model, texts=TEXTS):
    batch = padded(language_model, texts)
    with torch.no_grad():
        return batch.last(hidden_states(language_model, batch.ids, batch.positions, batch.visible))


@pytest.mark.parametrize("architecture", ["gpt2", "gptj", "llama", "gemma3"])
def test_padded_texts_end_as_they_do_alone(tiny, architecture):
    language_model = tiny(architecture)
    alone = torch.cat([run(language_model, [text]) for text in TEXTS])
    torch.testing.assert_close(run(language_model), alone, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])  # blocks return tuples, and tensors
def test_hooks_see_and_replace_inputs_and_outputs(tiny, architecture):
    language_model = tiny(architecture)
    block = language_model.layout.block(1)
    seen = {}

    def look(*tensors):
        seen[len(tensors)] = [tensor.clone() for tensor in tensors]

    with input_hooks(language_model, {block: look}), output_hooks(language_model, {block: look}):
        before = run(language_model)
    assert torch.equal(before, run(language_model))
    (entering,), (received, output) = seen[1], seen[2]
    assert torch.equal(entering, received)
    with input_hooks(language_model, {block: lambda x: 2 * x}):
        assert not torch.allclose(run(language_model), before, atol=1e-3)
    with output_hooks(language_model, {block: lambda x, _: x}):  # a block that does nothing
        skipped = run(language_model)
    with (
        output_hooks(language_model, {block: lambda x, y: x + y}),
        output_hooks(language_model, {block: lambda _, y: y - output}),  # after the one outside it
    ):
        torch.testing.assert_close(run(language_model), skipped, atol=1e-4, rtol=1e-3)


def test_recording_ends_the_pass_and_hooks_are_taken_off(tiny):
    language_model = tiny("llama")
    name = language_model.layout.mlp_out(0)
    module = language_model.module(name)
    with torch.no_grad(), record(language_model, inputs=[name]) as inputs:
        run(language_model)
    with record(language_model, outputs=[name]) as outputs:
        run(language_model)
    torch.testing.assert_close(outputs[name], module(inputs[name]))

    def fail(*_):
        raise RuntimeError("on purpose")

    for hooks in (input_hooks, output_hooks):
        with pytest.raises(RuntimeError, match="on purpose"), hooks(language_model, {name: fail}):
            run(language_model)
    assert not module._forward_hooks
    assert not module._forward_pre_hooks
