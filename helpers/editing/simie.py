"""SimIE: a sequence's edits of any editor, each kept where its own keys are.

An editor takes W_{t-1} to W~. With K [f, n] the matrix's inputs at all tokens of the request's prompt and
target,

    P_t = P_{t-1} + K K^T,   P_0 = ridge I,      W_t = W_{t-1} + (W~ - W_{t-1}) K K^T P_t^{-1}

(Guo et al. 2025, "Towards Lifelong Model Editing via Simulating Ideal Editor"). It is the recursion of
least squares: what earlier keys hold is changed less the oftener they were met. An edit that is made alone
is the first of a sequence.

The editor remembers nothing from turn to turn: upon AlphaEdit no earlier keys are protected, and UltraEdit's
statistics do not grow. What holds earlier edits is P alone.

K K^T P^-1 is never formed: the change is a product of (W~ - W) K and P^-1 K, of rank n. A change of a bias
is omitted, because it acts at every key. The authors' ridge is 10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from helpers.editing.edit import Edit
from helpers.editing.editor import Wrapper, diagnostics_of, made_in_batches
from helpers.editing.interventions import Delta, LowRank
from helpers.editing.presets import WrapperHyperparameters
from helpers.editing.request import EditRequest
from helpers.editing.running import under_all
from helpers.editing.sequence import SequenceState
from helpers.editing.weight_edit import WeightEdit
from helpers.models.forest import padded
from helpers.models.forward import hidden_states
from helpers.models.hooks import record
from helpers.models.tokens import answer_ids, prompt_ids, separator_after

Precision = dict[str, Tensor]  # P [f, f] by module, in fp64


class SimieHyperparameters(WrapperHyperparameters):
    """SimIE: ``ridge`` is lambda of P_0."""

    base: Literal["memit", "rome", "emmet", "alphaedit", "ft-m", "ultraedit"] = "memit"
    ridge: float = Field(default=10.0, gt=0)


@dataclass
class Simie(Wrapper):
    """SimIE on top of another editor."""

    hyperparameters: SimieHyperparameters
    name = "simie"

    def changed(self, edit: WeightEdit) -> WeightEdit:
        """The edit itself: what is left of it depends on its requests (``at_keys``)."""
        return edit

    def edit(self, requests: Sequence[EditRequest]) -> list[WeightEdit]:
        """The base editor's independent edits, each as the first of a sequence."""
        edits = [self.weights(edit) for edit in self.base.edit(requests)]
        keys = self._keys(requests, sorted({name for edit in edits for name in edit}))
        return [
            self.at_keys(edit, of_request, {}) for edit, of_request in zip(edits, keys, strict=True)
        ]

    def edit_jointly(self, requests: Sequence[EditRequest]) -> WeightEdit:
        """The base editor's joint edit, at the keys of all requests."""
        edit = self.weights(self.base.edit_jointly(requests))
        return self.at_keys(edit, self._keys_of_all(requests, edit), {})

    def after_turn(self, state: SequenceState, requests: Sequence[EditRequest]) -> SequenceState:
        """The turn's edit at its own keys, weighed against all keys before."""
        total = self.weights(state.edit)
        precision: Precision = dict(state.memory)
        total = total.plus(self._step(total, requests, precision))
        return SequenceState(total, precision)

    def edit_after(self, earlier: Edit, requests: Sequence[EditRequest]) -> Edit:
        """What requests add to an edited model, as the first of a sequence."""
        return self._step(self.weights(earlier), requests, {})

    def _step(
        self, earlier: WeightEdit, requests: Sequence[EditRequest], precision: Precision
    ) -> WeightEdit:
        step = self.weights(self.base.edit_after(earlier, requests))
        with under_all(self.lm, earlier):
            keys = self._keys_of_all(requests, step)
        return self.at_keys(step, keys, precision)

    def at_keys(
        self, edit: WeightEdit, keys: dict[str, Tensor], precision: Precision
    ) -> WeightEdit:
        """The edit times K K^T P^-1 in every matrix, for keys [n, f]; ``precision`` grows by K K^T."""
        deltas: dict[str, Delta] = {}
        for name, delta in edit.items():
            module_keys = keys[name].double()
            if name not in precision:
                identity = torch.eye(module_keys.shape[1]).to(module_keys)
                precision[name] = self.hyperparameters.ridge * identity
            precision[name] = precision[name] + module_keys.T @ module_keys
            left = delta.dense().double() @ module_keys.T  # (W~ - W) K [d, n]
            right = torch.linalg.solve(precision[name], module_keys.T)  # P^-1 K [f, n]
            deltas[name] = LowRank(left.float(), right.float())
        if not deltas:
            return edit
        return WeightEdit(deltas, {**edit.diagnostics, **diagnostics_of(self.lm, deltas)})

    def _keys_of_all(self, requests: Sequence[EditRequest], edit: WeightEdit) -> dict[str, Tensor]:
        keys_of_requests = self._keys(requests, sorted(edit))
        return {name: torch.cat([keys[name] for keys in keys_of_requests]) for name in edit}

    @torch.no_grad()
    def _keys(
        self, requests: Sequence[EditRequest], module_names: Sequence[str]
    ) -> list[dict[str, Tensor]]:
        """What enters the matrices at every token of each request's prompt and target, [n, f]."""
        texts = []
        for request in requests:
            with request.named():
                target = answer_ids(self.lm, request.target, separator_after(request.text))
                texts.append((*prompt_ids(self.lm, request.text), *target))

        def read(indices: Sequence[int]) -> list[dict[str, Tensor]]:
            batch = padded(self.lm, [texts[index] for index in indices])
            with record(self.lm, inputs=module_names) as recorded:
                hidden_states(self.lm, batch.ids, batch.positions, batch.visible)
            return [
                {name: recorded[name][row, : len(texts[index])].float() for name in module_names}
                for row, index in enumerate(indices)
            ]

        return made_in_batches([len(text) for text in texts], 4096, read)
