"""Gated edits and their editors: an edit acts at one module, after the prompts that its gate recognises.

A gate is asked about a prompt with vectors of one model, so an edit holds that model's fingerprint. Requests
that are made alone are trained together, and each is an edit of its own. A sequence of requests is one edit
that grows, not a chain: each request can change what the gate makes of the others' prompts.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from dataclasses import fields as dataclass_fields
from functools import cached_property
from typing import Any, ClassVar, Generic, Self, TypeVar

import torch
from torch import Tensor

from helpers.editing.demonstrations import BACKGROUND, background_prompts, digest
from helpers.editing.edit import Edit, EditChain, EditError, Recognition
from helpers.editing.editor import Editor, made_in_batches
from helpers.editing.editors import method_label
from helpers.editing.interventions import Gate
from helpers.editing.presets import LayerHyperparameters
from helpers.editing.request import EditRequest, with_one_prompt
from helpers.editing.rows import EditRow
from helpers.editing.running import PromptTokens, prefixes_of, under, with_prefix_texts
from helpers.editing.weight_edit import WeightEdit
from helpers.models import LanguageModel
from helpers.models.batching import tokens_at_once
from helpers.models.forest import padded
from helpers.models.forward import hidden_states
from helpers.models.hooks import record
from helpers.models.tokens import ids_of_prompts


class GatedEdit(Edit):
    """A ``gate`` at one module of the model with this ``fingerprint``; the fields are its classes'.

    Other fields that a class has, as JSON values, are kept with the edit.
    """

    gate_class: ClassVar[type[Gate]]
    module_name: str
    gate: Gate
    fingerprint: str

    def contents(self) -> tuple[dict[str, Tensor], Any]:
        """The gate's tensors; its other values and the edit's, by field name."""
        of_edit = {
            name: value for name, value in vars(self).items() if name not in ("gate", "diagnostics")
        }
        return self.gate.tensors(), {**of_edit, **self.gate.other_fields()}

    @classmethod
    def from_contents(
        cls, tensors: Mapping[str, Tensor], fields: Any, diagnostics: Mapping[str, Any]
    ) -> Self:
        """The edit whose ``contents`` these are."""
        names_of_gate = {field.name for field in dataclass_fields(cls.gate_class)}  # type: ignore[arg-type]
        of_gate = {name: value for name, value in fields.items() if name in names_of_gate}
        of_edit = {name: value for name, value in fields.items() if name not in names_of_gate}
        gate = cls.gate_class(**tensors, **of_gate)
        return cls(gate=gate, diagnostics=diagnostics, **of_edit)  # type: ignore[call-arg]

    def interventions(self) -> Mapping[str, Sequence[Gate]]:
        """The gate at its module."""
        return {self.module_name: [self.gate]}

    def recognised(
        self, lm: LanguageModel, prompts: Sequence[str], chain: EditChain | None = None
    ) -> list[Recognition]:
        """The entry that is chosen for each prompt, and how near the nearest one is."""
        if chain is not None:
            prompts = with_prefix_texts(
                lm, prefixes_of(lm, [chain], [0] * len(prompts), prompts), prompts
            )
        gate = self.gate.to(lm.device)
        queries = queries_of_prompts(lm, prompts, self.module_name, gate, chain)
        entries = gate.decide(queries).tolist()
        nearness = gate.nearness(queries).tolist()
        return [Recognition(*of_prompt) for of_prompt in zip(entries, nearness, strict=True)]

    @property
    def gate_notes(self) -> dict[str, Any]:
        """What is recorded of the gate with the edit."""
        return {}

    def to(self, device: str | torch.device) -> Self:
        """A copy on another device."""
        return replace(self, gate=self.gate.to(device))  # type: ignore[type-var]

    def check(self, lm: LanguageModel) -> None:
        """Raise ``EditError`` for another model, whose prompts ask with other vectors."""
        if not lm.has_fingerprint(self.fingerprint):
            raise EditError(f"this {self.kind} is of another model than {lm.name}: edit again")


@dataclass
class Trained:
    """What was trained for one request, and what that went through."""

    tensor: Tensor
    steps: int = 0
    losses: list[dict[str, float]] = field(default_factory=list)  # terms by name, per evaluation
    failure: str = ""

    def note(self, losses: dict[str, float]) -> None:
        """Note the terms of an evaluation; a number that is not finite ends the edit."""
        self.losses.append(losses)
        if not self.failure and not all(map(math.isfinite, losses.values())):
            self.failure = f"non-finite loss at step {len(self.losses) - 1}: {losses}"

    @property
    def diagnostics(self) -> dict[str, Any]:
        """What is recorded with the edit."""
        failure = {"failure": self.failure} if self.failure else {}
        return {"steps": self.steps, "losses": self.losses, **failure}


Gated = TypeVar("Gated", bound=GatedEdit)


class GatedEditor(Editor, Generic[Gated]):
    """An editor at the MLP's output matrix of one layer, whose edits are of ``edit_class``."""

    lm: LanguageModel
    hyperparameters: LayerHyperparameters
    progress: bool
    edit_class: type[Gated]
    app = None

    def __post_init__(self) -> None:
        (self.layer,) = self.hyperparameters.layers
        self.lm.layout.block(self.layer)
        self.module_name = self.lm.layout.mlp_out(self.layer)

    @abstractmethod
    def rows(self, requests: Sequence[EditRequest]) -> list[EditRow]:
        """For each request the row of tokens that its loss reads."""

    @abstractmethod
    def empty(self) -> Gated:
        """The edit that a sequence begins with."""

    @abstractmethod
    def train(
        self, edit: Gated, requests: Sequence[EditRequest], rows: Sequence[EditRow]
    ) -> list[Trained]:
        """What each request adds to the edit: trained in one batch, independently of each other."""

    @abstractmethod
    def extended(self, edit: Gated, request: EditRequest, row: EditRow, trained: Trained) -> Gated:
        """The edit with what was trained for one more request; the caller sets its diagnostics."""

    @property
    def edits_at_a_time(self) -> int | None:
        """Most requests of a batch; None: as many as its tokens allow."""
        return None

    def settings(self) -> dict[str, Any]:
        """Also the background prompts."""
        return super().settings() | {"background": [digest(), BACKGROUND]}

    def queries(self, prompts: Sequence[str]) -> Tensor:
        """The vectors by which the gate recognises prompts [prompts, in], read on the unedited model."""
        return queries_of_prompts(self.lm, prompts, self.module_name, self.edit_class.gate_class)

    @cached_property
    def background_queries(self) -> Tensor:
        """The same vectors of background prompts [prompts, in]."""
        return self.queries(background_prompts())

    def edit(self, requests: Sequence[EditRequest]) -> list[Edit]:
        """An edit of its own for each request."""
        if not requests:
            return []
        requests = with_one_prompt(requests)
        rows = self.rows(requests)
        empty = self.empty()
        trained_requests = made_in_batches(
            [int(row.active().sum()) for row in rows],
            tokens_at_once(self.lm, 2048, gradients=True),
            lambda indices: self.train(
                empty, [requests[i] for i in indices], [rows[i] for i in indices]
            ),
            max_items=self.edits_at_a_time,
            activity="optimising" if self.progress else "",
        )
        return [
            self._reported(empty, request, row, trained) or WeightEdit({}, trained.diagnostics)
            for request, row, trained in zip(requests, rows, trained_requests, strict=True)
        ]

    def edit_on(self, earlier: Edit, requests: Sequence[EditRequest]) -> Edit:
        """The earlier edit with the requests, one after the other."""
        gated_edit = self._begun(earlier)
        total = earlier
        requests = with_one_prompt(requests)
        for request, row in zip(requests, self.rows(requests), strict=True):
            (trained,) = self.train(gated_edit, [request], [row])
            extended = self._reported(gated_edit, request, row, trained)
            if extended is None:
                total = total.with_diagnostics(trained.diagnostics)
            else:
                total = gated_edit = extended
        return total

    def _begun(self, earlier: Edit) -> Gated:
        """The edit that a sequence continues with, or begins with after an empty one."""
        label = method_label(self.name)
        if isinstance(earlier, self.edit_class):
            earlier.check(self.lm)
            if earlier.module_name != self.module_name:
                raise EditError(
                    f"{label} at {self.module_name} cannot continue a {earlier.kind} at"
                    f" {earlier.module_name}"
                )
            return earlier.to(self.lm.device)
        if isinstance(earlier, WeightEdit) and not earlier:
            return self.empty()
        raise EditError(f"{label} continues a {self.edit_class.kind}, not a {earlier.kind} edit")

    def _reported(
        self, edit: Gated, request: EditRequest, row: EditRow, trained: Trained
    ) -> Gated | None:
        """The edit with what was trained, and the share of background prompts it acts after; None: failed."""
        if not trained.failure and not bool(trained.tensor.isfinite().all()):
            trained.failure = "the update is not finite"
        if trained.failure:
            return None
        extended = self.extended(edit, request, row, trained)
        acts = extended.gate.decide(self.background_queries) >= 0
        neutral = float(acts.float().mean())
        notes = {**trained.diagnostics, **extended.gate_notes, "neutral": neutral}
        return extended.with_diagnostics(notes)


@torch.inference_mode()
def queries_of_prompts(
    lm: LanguageModel,
    prompts: Sequence[str],
    module_name: str,
    gate: Gate | type[Gate],
    edit: Edit | None = None,
) -> Tensor:
    """The vectors by which a gate at a module recognises prompts [prompts, in], fp32, each prompt run alone.

    They are read under ``edit``, if one is given, whose text the prompts already begin with.
    """
    if not prompts:
        return torch.empty(0, lm.weight(module_name).shape[1], device=lm.device)
    edits = [] if edit is None else [edit]
    queries = {}
    for prompt, ids in ids_of_prompts(lm, prompts).items():
        alone = padded(lm, [ids])
        under_edit = under(lm, edits, [len(edits) - 1], PromptTokens.of_rows(alone.real))
        with under_edit, record(lm, inputs=[module_name]) as recorded:
            hidden_states(lm, alone.ids, alone.positions, alone.visible)
        queries[prompt] = gate.query(recorded[module_name][0])
    return torch.stack([queries[prompt] for prompt in prompts])
