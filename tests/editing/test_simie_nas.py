"""SimIE and NAS: where they change nothing, and what they change against their equations."""

from __future__ import annotations

import pytest
import torch

from helpers.editing import memit, nas
from helpers.editing.contexts import read_at_subjects
from helpers.editing.edit import Edit
from helpers.editing.held_out import first_held_out
from helpers.editing.nas import usual_of, with_usual_norm
from helpers.editing.request import EditRequest, RequestError
from helpers.editing.running import under_all
from tests.editing.conftest import assert_same

FEW = {"v_num_grad_steps": 3}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path_factory.getbasetemp() / "nas"))


@pytest.mark.parametrize("base", ["memit", "ft-m"])
def test_one_edit_at_all_keys_without_a_ridge_is_the_editors(tiny, make_editor, requests, base):
    """Keys of full row rank and lambda near 0: K K^T P^-1 is the identity."""
    lm = tiny("llama")
    few = FEW if base == "memit" else {"num_steps": 3}
    simie = make_editor("simie", lm, base=base, ridge=1e-9, **few)
    (edit,) = simie.base.edit(requests[:1])
    generator = torch.Generator().manual_seed(0)
    keys = {name: torch.randn(60, 48, generator=generator) for name in edit}
    assert_same(simie.at_keys(edit, keys, {}), edit)


def test_a_sequence_is_the_recursion_as_printed(tiny, make_editor, requests) -> None:
    """With P^-1 formed, in fp64; keys are those of all tokens of prompt and target."""
    lm = tiny("llama")
    simie = make_editor("simie", lm, base="memit", ridge=0.5, **FEW)
    first, second = list(simie.edit_sequentially(requests[:2]))
    precision: dict[str, torch.Tensor] = {}
    total: dict[str, torch.Tensor] = {}
    earlier = first.__class__({})
    for request, after in zip(requests, (first, second), strict=False):
        step = simie.base.edit_after(earlier, [request])
        with under_all(lm, earlier):
            (keys,) = simie._keys([request], list(step))
        for name, delta in step.items():
            k = keys[name].T.double()
            begun = 0.5 * torch.eye(48, dtype=torch.float64)
            precision[name] = precision.get(name, begun) + k @ k.T
            change = delta.dense().double() @ k @ k.T @ torch.linalg.inv(precision[name])
            total[name] = total.get(name, torch.zeros_like(change)) + change
            torch.testing.assert_close(
                after[name].dense().double(), total[name], rtol=1e-3, atol=1e-5
            )
        earlier = after
    assert_same(simie.edit(requests[:1])[0], first)


def test_simie_alone_in_a_batch_and_in_a_file(tiny, make_editor, requests, tmp_path) -> None:
    simie = make_editor("simie", tiny("llama"), **FEW)
    together = simie.edit(requests)
    for request, edit in zip(requests, together, strict=True):
        assert_same(edit, simie.edit([request])[0])
    together[0].save(tmp_path / "edit.safetensors")
    assert_same(Edit.load(tmp_path / "edit.safetensors"), together[0])


@pytest.mark.parametrize("architecture", ["gptj", "llama", "gemma3"])
def test_a_vector_of_the_usual_norm_stays_as_it_is(
    tiny, make_editor, requests, architecture
) -> None:
    lm = tiny(architecture)
    editor = make_editor("nas", lm, **FEW)
    vectors = make_editor("alphaedit", lm, **FEW)._vectors(requests)
    (once,) = with_usual_norm(editor, requests[:1], vectors[:1], 1.0, skip_long=False)
    m = once.norm_ratio  # ||v*||, since the norm was 1
    (inert,) = with_usual_norm(editor, requests[:1], vectors[:1], m, skip_long=True)
    torch.testing.assert_close(inert.delta, vectors[0].delta, rtol=1e-4, atol=1e-4)
    assert inert.norm_ratio == pytest.approx(1, abs=1e-5)
    (skipped,) = with_usual_norm(editor, requests[:1], vectors[:1], m / 2.1, skip_long=True)
    assert skipped.skipped
    assert not skipped.delta.any()
    (doubled,) = with_usual_norm(editor, requests[:1], vectors[:1], 2 * m, skip_long=True)
    output = inert.delta - doubled.delta  # v* - 2 v* = -v*
    assert float(output.norm()) == pytest.approx(m, rel=1e-4)


def test_nas_in_a_sequence_keeps_the_unedited_models_norm(
    tiny, make_editor, requests, tmp_path, monkeypatch
) -> None:
    lm = tiny("llama")
    editor = make_editor("nas", lm, **FEW)
    expected = editor._usual_norm()
    (earlier,) = make_editor("rome", lm, **FEW).edit(requests[:1])
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path))
    editor.edit_on(earlier, requests[1:2])
    assert editor._usual_norm() == pytest.approx(expected)
    edits = editor.edit(requests)
    for edit in edits:
        assert edit.diagnostics["norm_ratio"] > 0
    plain = make_editor("alphaedit", lm, **FEW)
    assert "norm_feedback" not in plain.settings()["hyperparameters"]


def test_the_usual_norm_is_of_what_reaches_the_residual_stream(tiny, make_editor, requests) -> None:
    """Granite multiplies what a block adds: the block's output with its MLP, and without."""
    lm = tiny("granite")
    editor = make_editor("nas", lm, **FEW)
    (added,) = nas._mlp_outputs(editor, requests[:1])
    layer = editor.hyperparameters.layers[-1]
    block = lm.layout.block(layer)
    bare_prompts = [prompts[:1] for prompts in editor.prompts(requests[:1])]

    def block_output() -> torch.Tensor:
        ((output,),) = read_at_subjects(lm, bare_prompts, outputs=[block])[block]
        return output

    with_mlp = block_output()
    hook = lm.module(lm.layout.mlp(layer)).register_forward_hook(
        lambda module, inputs, output: torch.zeros_like(output)
    )
    without_mlp = block_output()
    hook.remove()
    assert lm.residual_multiplier != 1
    torch.testing.assert_close(added, with_mlp - without_mlp, rtol=1e-4, atol=1e-4)


def test_the_held_out_requests_are_in_the_key(tiny, make_editor, monkeypatch) -> None:
    with_feedback = make_editor("nas", tiny("llama"), **FEW)
    without = make_editor("alphaedit", tiny("llama"), **FEW)
    before = with_feedback.settings(), without.settings()
    monkeypatch.setattr(memit, "held_out_digest", lambda: "another file")
    assert with_feedback.settings() != before[0]
    assert without.settings() == before[1]


def test_norms_from_the_requests_themselves_are_refused(tiny, make_editor) -> None:
    held_out = first_held_out(8)[2]
    request = EditRequest(held_out.subject, held_out.prompt, "Oslo", record="r")
    with pytest.raises(RequestError, match="one of the 8 held-out requests"):
        make_editor("nas", tiny("llama"), **FEW).edit([request])


def test_the_longest_five_percent_do_not_count() -> None:
    assert usual_of([1.0] * 19 + [100.0]) == 1
    assert usual_of([1.0, 3.0]) == 2
