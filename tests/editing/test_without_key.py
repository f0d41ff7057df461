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
from helpers.editing.without_key import key_itself, whitened, without_key, without_subject_keys
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
    left = without_key(delta, key, key_itself("m", key))
    across = normal(FEATURES, seed=6)
    across = across - key * across.dot(key) / key.dot(key)
    torch.testing.assert_close(left.dense() @ key, torch.zeros(OUTPUTS), atol=1e-5, rtol=0)
    torch.testing.assert_close(left.dense() @ across, delta.dense() @ across, atol=1e-5, rtol=1e-4)
    assert left.bias is delta.bias


def test_a_low_rank_delta_stays_one():
    key = normal(FEATURES)
    assert isinstance(without_key(deltas()[0], key, key), LowRank)


def moment_of(matrix: torch.Tensor) -> SecondMoment:
    return SecondMoment(matrix, tokens=99, layer=0, fingerprint="", corpus="")


def test_whitened_removal_is_the_smallest_change_for_the_models_keys():
    roots = normal(FEATURES, FEATURES, seed=7).double()
    moment = moment_of(roots @ roots.T + torch.eye(FEATURES))
    key = normal(FEATURES, seed=5)
    (delta, *_) = deltas()
    direction = whitened({"m": moment})("m", key)
    left = without_key(delta, key, direction).dense()
    plain = without_key(delta, key, key).dense()

    def change(other: torch.Tensor) -> float:
        difference = (other - delta.dense()).double()
        return float((difference @ moment.matrix @ difference.T).trace())

    torch.testing.assert_close(left @ key, torch.zeros(OUTPUTS), atol=1e-4, rtol=0)
    assert change(left) < change(plain)
    # ROME's own update is a value times C^-1 k: nothing of it is left.
    rome = LowRank(normal(OUTPUTS, 1), direction[:, None].float())
    nothing = without_key(rome, key, direction).dense()
    torch.testing.assert_close(nothing, torch.zeros(OUTPUTS, FEATURES), atol=1e-5, rtol=0)
    with pytest.raises(EditError, match="other has no second moment"):
        whitened({"m": moment})("other", key)


def test_nothing_is_added_at_the_subject_in_any_layer(tiny):
    """Each key is the one that the changed model has there: earlier layers change earlier tokens."""
    lm = tiny("llama")
    names = [lm.layout.mlp_out(1), lm.layout.mlp_out(2)]
    edit = WeightEdit(
        {name: LowRank(normal(32, 2), normal(48, 2, seed=n)) for n, name in enumerate(names)},
        {"steps": 3},
    )
    other = WeightEdit({names[1]: LowRank(normal(32, 1), normal(48, 1, seed=9))})
    failed = WeightEdit({}, {"failure": "x"})
    changed = without_subject_keys(lm, [edit, other, failed], [REQUEST] * 3)
    prompt = subject_prompt(lm, REQUEST.prompt, REQUEST.subject)
    batch = padded(lm, [prompt.ids] * 3)

    def inputs_under(edits: list[WeightEdit], owners: list[int]) -> dict[str, torch.Tensor]:
        with torch.no_grad(), under(lm, edits, owners), record(lm, inputs=names) as inputs:
            hidden_states(lm, batch.ids, batch.positions, batch.visible)
        return dict(inputs)

    inputs = inputs_under(changed, [0, 1, 2])
    for row, (weight_edit, left) in enumerate(zip([edit, other], changed, strict=False)):
        for name in weight_edit:
            at_subject = inputs[name][row, prompt.subject_last]
            added = left[name].contribution(at_subject)
            whole = weight_edit[name].contribution(at_subject)
            assert float(added.norm()) < 1e-4 * float(whole.norm())
            assert float(left[name].contribution(inputs[name][row, -1]).norm()) > 1e-2
    unedited = inputs_under([], [-1] * 3)
    key = unedited[names[1]][0, prompt.subject_last]
    assert not torch.allclose(inputs[names[1]][0, prompt.subject_last], key, atol=1e-3)
    assert changed[0].diagnostics == {"steps": 3}
    assert changed[2] == failed
