"""Edits of weights without what they do to one key: is damage done through the subject's key, or beside it?

An edit adds ΔW to a matrix, and so ΔW k to what the subject's key k is mapped to. With a *direction* a,

    ΔW' = ΔW (I - k aᵀ / aᵀk)

does nothing to that key, ΔW' k = 0, whatever a is. With a = k it is the ΔW' nearest to ΔW in the Frobenius
norm: the component along k is removed. With a = C⁻¹k, C the second moment of keys, it is the nearest as the
model's keys weigh directions, so that other keys keep as much of the change as they can. (Of one edit by ROME
or MEMIT nothing is left then: their ΔW is a multiple of the rank-one matrix that this removes.)

A bias, which FT trains where the module has one, is added whatever the key is: it stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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

Keys = Mapping[str, Tensor]  # a vector [f] by the name of the module that it enters


def subject_keys(
    lm: LanguageModel, requests: Sequence[EditRequest], module_names: Sequence[str]
) -> list[dict[str, Tensor]]:
    """What enters the modules at the last token of each request's subject, in its prompt, unedited.

    The unedited model's keys are the right ones at later modules as well: where all earlier changes do
    nothing to their keys, what enters there is what entered before the edit.
    """
    prompts = [[subject_prompt(lm, request.prompt, request.subject)] for request in requests]
    inputs = read_at_subjects(lm, prompts, inputs=module_names)
    return [
        {name: inputs[name][index][0] for name in module_names} for index in range(len(requests))
    ]


def without_key(edit: WeightEdit, keys: Keys, directions: Keys | None = None) -> WeightEdit:
    """The edit whose changes do nothing to ``keys``; ``directions``: a of each module, by default the key."""
    directions = keys if directions is None else directions
    deltas = {
        name: _without_key(delta, keys[name], directions[name]) for name, delta in edit.items()
    }
    return WeightEdit(deltas, edit.diagnostics)


def whitened(keys: Keys, moments: Mapping[str, SecondMoment]) -> dict[str, Tensor]:
    """C⁻¹k of every module's key; ``moments`` are by module name. An ``EditError`` where one is missing."""
    directions = {}
    for name, key in keys.items():
        if name not in moments:
            raise EditError(
                f"{name} has no second moment, which keys of MLP outputs alone have: remove its key as it"
                " is, without whitening"
            )
        directions[name] = moments[name].solve(key)
    return directions


def _without_key(delta: Delta, key: Tensor, direction: Tensor) -> Delta:
    exact_direction = direction.double()
    row = (exact_direction / exact_direction.dot(key.double())).to(key.dtype)  # aᵀ / aᵀk, [f]
    if isinstance(delta, LowRank):
        return LowRank(delta.left, delta.right - torch.outer(row, key @ delta.right))
    matrix = delta.dense()  # [d, f]
    return Dense(matrix - torch.outer(matrix @ key, row), delta.bias)
