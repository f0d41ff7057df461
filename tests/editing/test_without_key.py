"""Edits without what they do to one key: what is removed, what stays, and where the key is read."""

from __future__ import annotations

import pytest
import torch

from helpers.editing.edit import EditError
from helpers.editing.interventions import Dense, LowRank, Masked
from helpers.editing.moments import SecondMoment
from helpers.editing.request import EditRequest
from helpers.editing.running import under
from helpers.editing.weight_edit import WeightEdit
from helpers.editing.without_key import subject_keys, whitened, without_key
from helpers.models.forest import padded
from helpers.models.forward import hidden_states
from helpers.models.hooks import record
from helpers.models.tokens import subject_prompt

REQUEST = EditRequest("Sudan", "{} shares a border with", "Thailand")
FEATURES, OUTPUTS = 11, 5


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def deltas() -> list[LowRank | Masked | Dense]:
    low = LowRank(normal(OUTPUTS, 2), normal(FEATURES, 2, seed=1))
    masked = Masked.from_mask(low, normal(OUTPUTS, FEATURES, seed=2) > 0)
    return [low, masked, Dense(normal(OUTPUTS, FEATURES, seed=3), normal(OUTPUTS, seed=4))]


@pytest.mark.parametrize("kind", range(3))
def test_the_component_along_the_key_is_removed_and_nothing_else(kind):
    delta = deltas()[kind]
    key = normal(FEATURES, seed=5)
    (left,) = without_key(WeightEdit({"m": delta}, {"steps": 3}), {"m": key}).values()
    across = normal(FEATURES, seed=6)
    across = across - key * across.dot(key) / key.dot(key)
    torch.testing.assert_close(left.dense() @ key, torch.zeros(OUTPUTS), atol=1e-5, rtol=0)
    torch.testing.assert_close(left.dense() @ across, delta.dense() @ across, atol=1e-5, rtol=1e-4)
    assert left.bias is delta.bias


def test_a_low_rank_edit_stays_one_and_keeps_its_diagnostics():
    edit = WeightEdit({"m": deltas()[0]}, {"steps": 3})
    left = without_key(edit, {"m": normal(FEATURES)})
    assert isinstance(left["m"], LowRank)
    assert left.diagnostics == {"steps": 3}
    assert without_key(WeightEdit({}, {"failure": "x"}), {}).diagnostics == {"failure": "x"}


def moment_of(matrix: torch.Tensor) -> SecondMoment:
    return SecondMoment(matrix, tokens=99, layer=0, fingerprint="", corpus="")


def test_whitened_removal_is_the_smallest_change_for_the_models_keys():
    roots = normal(FEATURES, FEATURES, seed=7).double()
    moment = moment_of(roots @ roots.T + torch.eye(FEATURES))
    key = normal(FEATURES, seed=5)
    (delta, *_) = deltas()
    edit = WeightEdit({"m": delta})
    directions = whitened({"m": key}, {"m": moment})
    left = without_key(edit, {"m": key}, directions)["m"].dense()
    plain = without_key(edit, {"m": key})["m"].dense()

    def change(other: torch.Tensor) -> float:
        difference = (other - delta.dense()).double()
        return float((difference @ moment.matrix @ difference.T).trace())

    torch.testing.assert_close(left @ key, torch.zeros(OUTPUTS), atol=1e-4, rtol=0)
    assert change(left) < change(plain)
    # ROME's own update is a value times C^-1 k: nothing of it is left.
    rome = WeightEdit({"m": LowRank(normal(OUTPUTS, 1), directions["m"][:, None].float())})
    nothing = without_key(rome, {"m": key}, directions)["m"].dense()
    torch.testing.assert_close(nothing, torch.zeros(OUTPUTS, FEATURES), atol=1e-5, rtol=0)
    with pytest.raises(EditError, match="other has no second moment"):
        whitened({"other": key}, {"m": moment})


def test_the_subject_is_as_it_was_before_edits_of_several_layers(tiny):
    """Keys of later layers are those of the unedited model, since the earlier layers leave them so."""
    lm = tiny("llama")
    layout = lm.layout
    names = [layout.mlp_out(1), layout.mlp_out(2)]
    edit = WeightEdit(
        {name: LowRank(normal(32, 2), normal(48, 2, seed=n)) for n, name in enumerate(names)}
    )
    (keys,) = subject_keys(lm, [REQUEST], names)
    prompt = subject_prompt(lm, REQUEST.prompt, REQUEST.subject)

    def states(edit: WeightEdit | None) -> torch.Tensor:
        batch = padded(lm, [prompt.ids])
        edits, owners = ([edit], [0]) if edit else ([], [-1])
        with torch.no_grad(), under(lm, edits, owners):
            return hidden_states(lm, batch.ids, batch.positions, batch.visible)[0]

    with torch.no_grad(), record(lm, inputs=names) as inputs:
        batch = padded(lm, [prompt.ids])
        hidden_states(lm, batch.ids, batch.positions, batch.visible)
    for name in names:
        torch.testing.assert_close(inputs[name][0, prompt.subject_last], keys[name])
    unedited = states(None)
    projected = states(without_key(edit, keys))
    at_subject = prompt.subject_last
    torch.testing.assert_close(projected[at_subject], unedited[at_subject], atol=1e-4, rtol=1e-4)
    assert not torch.allclose(states(edit)[at_subject], unedited[at_subject], atol=1e-2)
    assert not torch.allclose(projected[-1], unedited[-1], atol=1e-3)  # other keys are changed
