"""EMMET with e = 0, and MEMIT that accumulates: what they say of keys and values, on tiny models."""

from __future__ import annotations

import pytest
import torch

from helpers.editing.contexts import ContextTemplates
from helpers.editing.editors import EditorError
from helpers.editing.emmet import Emmet, EmmetHyperparameters
from helpers.editing.key_history import KeyHistory
from helpers.editing.presets import read_hyperparameters
from helpers.editing.rome import Rome, RomeHyperparameters
from helpers.editing.running import under_all
from tests.editing.conftest import VECTOR, assert_same

ALONE = ContextTemplates((("{}",),))
FREE = {**VECTOR, "layers": (1,), "v_weight_decay": 0.0, "clamp_norm_factor": 1e6}


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_one_edit_is_romes_with_the_bare_key(tiny, moments_of, requests, architecture) -> None:
    """Whole edits: a vector at the block's output is one at the MLP's, where no norm lies between."""
    lm = tiny(architecture)
    moments = moments_of(lm)
    emmet = Emmet(lm, EmmetHyperparameters(**FREE), ALONE, moments)
    rome = Rome(lm, RomeHyperparameters(**FREE), ALONE, moments)
    for one, other in zip(emmet.edit(requests), rome.edit(requests), strict=True):
        assert_same(one, other)


def test_a_joint_edit_maps_every_key_to_its_value(tiny, make_editor) -> None:
    editor = make_editor("emmet", tiny("llama"))
    generator = torch.Generator().manual_seed(0)
    keys = torch.randn(48, 4, generator=generator, dtype=torch.float64)
    residuals = torch.randn(32, 4, generator=generator, dtype=torch.float64)
    left, right = editor.solve_jointly(1, keys, residuals)
    torch.testing.assert_close(left @ (right.T @ keys), residuals)
    earlier = torch.randn(48, 3, generator=generator, dtype=torch.float64)
    left, right = editor.solve_jointly(1, keys, residuals, KeyHistory({1: earlier}))
    torch.testing.assert_close(left @ (right.T @ keys), residuals)
    assert float((left @ (right.T @ earlier)).abs().max()) < 1e-9


def test_keys_that_repeat_each_other_are_told_and_do_no_harm(tiny, make_editor, requests) -> None:
    lm = tiny("llama")
    editor = make_editor("emmet", lm)
    twice = editor.edit_jointly([requests[0], requests[0]])
    (once,) = editor.edit(requests[:1])
    notes = twice.diagnostics["layers"][lm.layout.mlp_out(1)]
    assert notes["condition"] > 1e10
    assert notes["warning"].startswith("layer 1: keys repeat each other")
    assert_same(twice, once)
    assert (
        "warning" not in editor.edit_jointly(requests).diagnostics["layers"][lm.layout.mlp_out(1)]
    )


def test_any_other_e_is_refused_in_one_line() -> None:
    with pytest.raises(
        EditorError, match=r"this is MEMIT with lambda = e w .*; use memit"
    ) as caught:
        read_hyperparameters("emmet", "llama2-7b", "generic", emmet_lambda=0.1)
    assert len(str(caught.value).splitlines()) == 1


def test_memit_accumulates_the_keys_of_its_run(tiny, make_editor, requests) -> None:
    """Step by step by hand, as AlphaEdit's cache is tested; without the field nothing is remembered."""
    lm = tiny("llama")
    editor = make_editor("memit-seq", lm, v_num_grad_steps=3)
    plain = make_editor("memit", lm, v_num_grad_steps=3)
    assert "accumulate" not in plain.settings()["hyperparameters"]
    first, second = list(editor.edit_sequentially(requests[:2]))
    assert_same(first, plain.edit(requests[:1])[0])
    history: KeyHistory = {}
    with under_all(lm, first):
        editor._remember(history, requests[:1])
        step = editor.edit_jointly(requests[1:2], history)
        (forgetful,) = plain.edit(requests[1:2])
    assert_same(second, first.plus(step))
    assert second.diagnostics["history_bytes"] == 2 * 2 * 48 * 8  # two keys at two layers
    for layer, keys in history.items():
        module_name = lm.layout.mlp_out(layer)
        key = keys.T.float()
        disturbed = step[module_name].contribution(key).norm() / step[module_name].norm()
        plainly = forgetful[module_name].contribution(key).norm() / forgetful[module_name].norm()
        assert disturbed < plainly
