"""Edits of weights without what they do to one key: is damage done through the subject's key or others?

An edit adds ΔW to a matrix, and so ΔW k to what the subject's key k is mapped to. With a *direction* a,

    ΔW' = ΔW (I - k aᵀ / aᵀk)

does nothing to that key, ΔW' k = 0, whatever a is. With a = k it is the ΔW' nearest to ΔW in the Frobenius
norm: the component along k is removed. With a = C⁻¹k, C the second moment of keys, it is the nearest as the
model's keys weigh directions, so that other keys keep as much of the change as they can. (Of one edit by ROME
or MEMIT nothing is left then: their ΔW is a multiple of the rank-one matrix that this removes.)

Other tokens' keys are still changed, those of the subject's earlier tokens among them, and attention carries
that on to later layers. So each module's key is read with the modules before it as they have become. A bias,
which FT trains where the module has one, is added whatever the key is: it stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from helpers.editing.contexts import read_at_subjects
from helpers.editing.edit import EditError
from helpers.editing.interventions import Delta, Dense, LowRank
from helpers.editing.moments import SecondMoment
from helpers.editing.request import EditRequest
from helpers.editing.weight_edit import WeightEdit
from helpers.models import LanguageModel
from helpers.models.tokens import subject_prompt

Direction = Callable[
    [str, Tensor], Tensor
]  # a [f] of a module's name and the key [f] that enters it


def key_itself(module_name: str, key: Tensor) -> Tensor:
    """The direction that removes the component along the key."""
    return key


def whitened(moments: Mapping[str, SecondMoment]) -> Direction:
    """The direction C⁻¹k; ``moments`` are by module name. It raises ``EditError`` where one is missing."""

    def direction(module_name: str, key: Tensor) -> Tensor:
        if module_name not in moments:
            raise EditError(
                f"{module_name} has no second moment, which keys of MLP outputs alone have: remove its key"
                " as it is, without whitening"
            )
        return moments[module_name].solve(key)

    return direction


def without_subject_keys(
    lm: LanguageModel,
    edits: Sequence[WeightEdit],
    requests: Sequence[EditRequest],
    direction: Direction = key_itself,
) -> list[WeightEdit]:
    """The edits without what they do to the key at a subject's last token, in its prompt.

    Args:
        edits: of weights.
        requests: for each edit the one whose prompt and subject give the key: its own, or another.
        direction: the direction a of each module.
    """
    prompts = [[subject_prompt(lm, request.prompt, request.subject)] for request in requests]
    changed = [WeightEdit({}, edit.diagnostics) for edit in edits]
    for module_name in _modules_in_order(lm, edits):
        keys = read_at_subjects(lm, prompts, inputs=[module_name], edits=changed)[module_name]
        for index, edit in enumerate(edits):
            if module_name in edit:
                key = keys[index][0]
                left = without_key(edit[module_name], key, direction(module_name, key))
                deltas = {**changed[index], module_name: left}
                changed[index] = WeightEdit(deltas, edit.diagnostics)
    return changed


def without_key(delta: Delta, key: Tensor, direction: Tensor) -> Delta:
    """A delta that does nothing to the key [f]; the direction [f] is that of the module's docstring."""
    exact_direction = direction.double()
    row = (exact_direction / exact_direction.dot(key.double())).to(key.dtype)  # aᵀ / aᵀk, [f]
    if isinstance(delta, LowRank):
        return LowRank(delta.left, delta.right - torch.outer(row, key @ delta.right))
    matrix = delta.dense()  # [d, f]
    return Dense(matrix - torch.outer(matrix @ key, row), delta.bias)


def _modules_in_order(lm: LanguageModel, edits: Sequence[WeightEdit]) -> list[str]:
    """The modules that the edits change, in the order in which the network runs them."""
    edited_names = {module_name for edit in edits for module_name in edit}
    return [name for name, _ in lm.network.named_modules() if name in edited_names]
