"""Edits of weights as values: dense forms, files, and weights that come back bit by bit."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch

from helpers import UserError
from helpers.editing.edit import EditError
from helpers.editing.interventions import Delta, Dense, LowRank, Masked
from helpers.editing.running import under
from helpers.editing.weight_edit import WeightEdit, apply, write


def deltas(out: int, width: int) -> list[Delta]:
    generator = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    low = LowRank(normal(out, 2), normal(width, 2))
    return [low, Masked.from_mask(low, normal(out, width) > 0.5), Dense(normal(out, width))]


@pytest.mark.parametrize("kind", range(3))
def test_rows_norm_and_shape_follow_from_the_dense_form(kind):
    delta = deltas(5, 11)[kind]
    x = torch.randn(2, 3, 11)
    torch.testing.assert_close(delta.contribution(x), x @ delta.dense().T)
    assert delta.shape == tuple(delta.dense().shape)
    assert delta.norm() == pytest.approx(float(delta.dense().norm()), rel=1e-5)


@pytest.mark.parametrize("kind", range(3))
def test_safetensors_round_trip(tmp_path, kind):
    update = WeightEdit({"a.b": deltas(5, 11)[kind]}, {"steps": 3, "losses": [{"nll": 1.0}]})
    update.save(tmp_path / "update.safetensors")
    again = WeightEdit.load(tmp_path / "update.safetensors")
    assert torch.equal(again["a.b"].dense(), update["a.b"].dense())
    assert again.diagnostics == update.diagnostics


def test_a_foreign_file_is_no_update(tmp_path):
    from safetensors.torch import save_file

    save_file({"x": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(UserError, match="holds no edit"):
        WeightEdit.load(tmp_path / "other.safetensors")


@pytest.mark.parametrize("architecture", ["gpt2", "gptj", "llama"])
def test_apply_restores_bit_by_bit_even_after_an_error(tiny, architecture):
    model = tiny(architecture)
    layout = model.layout
    update = WeightEdit(
        {
            layout.mlp_out(2): Dense(torch.randn(32, 48)),
            layout.mlp_in(0)[0]: Dense(torch.randn(48, 32)),
        }
    )
    before = {name: p.clone() for name, p in model.network.named_parameters()}
    edited = layout.mlp_out(2)

    def interrupted() -> None:
        with apply(model, update):
            now = model.module(edited).weight
            assert not torch.equal(now, before[f"{edited}.weight"])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    for name, parameter in model.network.named_parameters():
        assert torch.equal(parameter, before[name])


def test_write_adds_matrix_and_bias_for_good(tiny):
    model = tiny("gpt2", 5)
    name = model.layout.mlp_out(1)
    before = model.weight(name).clone()
    bias = model.module(name).bias.clone()
    fingerprint, norm = model.fingerprint, model.weight_norm(name)
    change = torch.zeros(32, 48)
    change[:, 1] = 1  # of one neuron
    delta = Dense(change, torch.randn(32))
    write(model, WeightEdit({name: delta}))
    assert model.fingerprint != fingerprint  # another model now
    assert model.weight_norm(name) != norm
    torch.testing.assert_close(model.weight(name), before + delta.matrix)
    torch.testing.assert_close(model.module(name).bias, bias + delta.bias)
    write(model, WeightEdit({name: Dense(-delta.matrix, -delta.bias)}))


def test_an_update_of_another_model_is_refused(tiny):
    model = tiny("llama")
    wrong_name = WeightEdit({"transformer.h.1.mlp.c_proj": Dense(torch.zeros(2, 2))})
    wrong_shape = WeightEdit({model.layout.mlp_out(0): Dense(torch.zeros(2, 2))})
    for update in (wrong_name, wrong_shape):
        with pytest.raises(EditError, match="another model"):
            write(model, update)
        with pytest.raises(EditError, match="another model"), under(model, [update], [0]):
            pass


class Coded(torch.Tensor):
    """A tensor whose numbers are looked up, as quantised models have them."""


QUANTISED = {
    "int8": lambda weight: weight.mul(50).to(torch.int8),
    "uint8": lambda weight: torch.zeros(weight.numel() // 2, 1, dtype=torch.uint8),  # packed
    "float8_e4m3fn": lambda weight: weight.to(torch.float8_e4m3fn),
    "bool": lambda weight: weight > 0,
    "Coded": lambda weight: weight.detach().as_subclass(Coded),
    "device meta": lambda weight: weight.to("meta"),
}


@pytest.mark.parametrize("writing", [write, apply])
@pytest.mark.parametrize("parameter", ["weight", "bias"])
@pytest.mark.parametrize("kind", QUANTISED)
def test_what_are_no_numbers_in_memory_is_not_written(tiny, kind, parameter, writing):
    model = copy.deepcopy(tiny("gpt2"))
    sound, coded = (model.layout.mlp_out(layer) for layer in (0, 1))
    module = model.module(coded)
    stored = QUANTISED[kind](getattr(module, parameter))
    module.register_parameter(parameter, torch.nn.Parameter(stored, requires_grad=False))
    before = {name: p.clone() for name, p in model.network.named_parameters()}
    change = Dense(torch.ones(32, 48), torch.ones(32))
    message = rf"{coded}\.{parameter} .*{kind}.*: load the model in floating point"
    update = WeightEdit({sound: change, coded: change})
    with pytest.raises(EditError, match=message), writing(model, update):
        pass
    for name, kept in before.items():
        if not kept.is_meta:
            assert torch.equal(model.network.get_parameter(name), kept), name


def test_an_update_of_a_bias_needs_one(tiny):
    model = tiny("llama")
    update = WeightEdit({model.layout.mlp_out(0): Dense(torch.zeros(32, 48), torch.zeros(32))})
    with pytest.raises(EditError, match="another model"):
        write(model, update)


def test_scoring_needs_no_weights_that_can_be_written(tiny):
    """It adds to what a module gives, whatever the module makes it from."""
    model = copy.deepcopy(tiny("gpt2"))
    name = model.layout.mlp_out(1)
    module = model.module(name)
    coded = module.weight.detach().mul(50).round().to(torch.int8)
    module.weight = torch.nn.Parameter(coded, requires_grad=False)
    module.forward = lambda x: x @ (coded.float() / 50) + module.bias
    ids = torch.tensor([[1, 2, 3]])
    plain = model.network(ids).logits
    with under(model, [WeightEdit({name: Dense(torch.ones(32, 48))})], [0]):
        assert not torch.allclose(model.network(ids).logits, plain)


def test_small_changes_of_half_precision_weights_are_rounded_once_and_said_so(tiny):
    model = copy.deepcopy(tiny("llama"))
    model.network.bfloat16()
    name = model.layout.mlp_out(1)
    weight = model.weight(name)
    small = WeightEdit({name: Dense(1e-3 * weight.float() * torch.randn(weight.shape))})
    exact = weight.float() + small[name].dense()
    with pytest.warns(UserWarning, match="largely lost"), apply(model, small):
        assert torch.equal(model.weight(name), exact.bfloat16())
    large = WeightEdit({name: Dense(weight.float().clone())})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write(model, large)


@pytest.mark.parametrize(("dtype", "value"), [("float32", float("nan")), ("float16", 1e5)])
def test_what_a_weights_type_does_not_hold_is_not_written(tiny, dtype, value):
    model = copy.deepcopy(tiny("llama"))
    model.network.to(getattr(torch, dtype))
    first, second = model.layout.mlp_out(0), model.layout.mlp_out(1)
    before = model.fingerprint
    size = model.weight(first).shape
    update = WeightEdit({first: Dense(torch.ones(size)), second: Dense(torch.full(size, value))})
    with pytest.raises(EditError, match=f"{second}: the edit makes infinite or undefined"):
        write(model, update)
    assert model.fingerprint == before
