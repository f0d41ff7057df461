"""What an editor returns: an edit as a value, whatever it changes, and never a change of the model.

An edit can put text before every prompt (``prefixes``) and change what named modules compute
(``interventions``): deltas of weights, or gates. ``running`` runs a model under edits. A kind of edit is one
module with one class; what can be loaded is listed in ``KINDS``.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from helpers import UserError
from helpers.editing.interventions import Delta, Gate, Intervention
from helpers.kept import kept_at, read_kept
from helpers.models import LanguageModel
from helpers.paths import written_whole

# Module in this folder and class, by kind. A class is imported when an edit of its kind is loaded.
KINDS = {
    "weights": "weight_edit.WeightEdit",
    "chain": "edit.EditChain",
    "context": "in_context.ContextEdit",
    "memory": "memory.MemoryEdit",
    "codebook": "grace.Codebook",
    "residual memory": "memoir.ResidualMemory",
}


class EditError(UserError):
    """An edit that does not belong to the model or file it is used with."""


class Recognition(NamedTuple):
    """Whether an edit acts after a prompt, and how near the prompt is to what it acts by."""

    entry: int  # the number of the statement or key that it acts by; -1: it does nothing
    nearness: float  # of the nearest one, in the edit's own unit; higher is nearer


class Edit(ABC):
    """A change of what a model computes, or of what it is asked: what an editor returns.

    It is a value: nothing of the model changes until ``weight_edit.write`` or ``apply`` writes it. Scoring
    and generation take edits as an argument. ``diagnostics`` are what the editor recorded.
    """

    kind: ClassVar[str]  # of ``KINDS``
    # What the editor recorded, in a sequence of its latest request; ``failure``: why it gave that up.
    diagnostics: Mapping[str, Any]

    @property
    def failed(self) -> bool:
        """Whether the edit does nothing because the editor gave it up.

        The cumulative edit of a sequence whose latest request was given up still holds the earlier ones: it
        has not failed, and its ``diagnostics`` have the ``failure`` of that request.
        """
        return "failure" in self.diagnostics and not self.interventions()

    def prefixes(self, lm: LanguageModel, prompts: Sequence[str]) -> list[str]:
        """The text that this edit puts before each prompt; empty: none."""
        return [""] * len(prompts)

    def interventions(self) -> Mapping[str, Sequence[Intervention]]:
        """By module name what it does there, in this order."""
        return {}

    @property
    def gates(self) -> list[Gate]:
        """All gates among what it does."""
        return [
            intervention
            for of_module in self.interventions().values()
            for intervention in of_module
            if isinstance(intervention, Gate)
        ]

    @property
    def is_gated(self) -> bool:
        """Whether what it does depends on the prompt."""
        return bool(self.gates)

    @property
    def sees_whole_prompts(self) -> bool:
        """Whether one of its gates reads or changes tokens before a prompt's last one."""
        return any(gate.sees_whole_prompts() for gate in self.gates)

    def recognised(
        self, lm: LanguageModel, prompts: Sequence[str], chain: EditChain | None = None
    ) -> list[Recognition] | None:
        """For each prompt whether the edit acts after it; None for an edit that acts after all prompts.

        ``chain`` is the chain that the edit is a part of, if any: its other parts change what a gate sees.
        """
        return None

    def check(self, lm: LanguageModel) -> None:  # noqa: B027 - most kinds fit every model
        """Raise ``EditError`` where the edit was made for another model."""

    def then(self, later: Edit) -> Edit:
        """This edit and a later one together."""
        return EditChain((*chain_parts(self), *chain_parts(later)), later.diagnostics)

    def with_diagnostics(self, diagnostics: Mapping[str, Any]) -> Self:
        """The same edit with other records of how it was made."""
        return replace(self, diagnostics=diagnostics)  # type: ignore[type-var]

    @abstractmethod
    def to(self, device: str | torch.device) -> Edit:
        """A copy on another device."""

    @abstractmethod
    def contents(self) -> tuple[dict[str, Tensor], Any]:
        """All that the edit consists of: tensors by name, and the rest as JSON values."""

    @classmethod
    @abstractmethod
    def from_contents(
        cls, tensors: Mapping[str, Tensor], fields: Any, diagnostics: Mapping[str, Any]
    ) -> Self:
        """The edit whose ``contents`` these are."""

    def save(self, path: Path | str) -> None:
        """Write the edit and its diagnostics to one safetensors file.

        Raises:
            EditError: an edit of a kind that ``load`` does not know.
        """
        for part in (self, *chain_parts(self)):
            if part.kind not in KINDS:
                raise EditError(
                    f"{path}: a {part.kind} edit could not be loaded again: list its class in KINDS of"
                    f" {__name__} first"
                )
        tensors, fields = self.contents()
        # Cloned, since a file cannot hold tensors that share memory (KN's one vector).
        separate = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
        metadata = {
            "kind": self.kind,
            "fields": json.dumps(fields),
            "diagnostics": json.dumps(dict(self.diagnostics)),
        }
        with written_whole(Path(path)) as scratch:
            save_file(separate, scratch, metadata)

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read what ``save`` wrote; an ``EditError`` names a file that holds no edit of this class."""
        if not kept_at(Path(path)).is_file():
            raise EditError(f"{path}: there is no such file; an edit's method save writes one")
        edit = read_kept(Path(path), _read)
        if not isinstance(edit, cls):
            raise EditError(f"{path} holds a {edit.kind} edit: read it with Edit.load")
        return edit


def _read(path: Path) -> Edit:
    with safe_open(path, "pt") as file:
        metadata = file.metadata() or {}
        if metadata.get("kind") not in KINDS:
            raise EditError(f"{path} holds no edit: write it with its method save")
        names = file.keys()
        tensors = aligned({name: file.get_tensor(name) for name in names})
    return _made(
        metadata["kind"],
        tensors,
        json.loads(metadata["fields"]),
        json.loads(metadata["diagnostics"]),
    )


def aligned(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies in memory of torch's own.

    What is read from a file lies wherever the file has it, and some processors' products of the same numbers
    differ in their last bits by where these lie.
    """
    return {name: tensor.clone() for name, tensor in tensors.items()}


def _made(
    kind: str, tensors: Mapping[str, Tensor], fields: Any, diagnostics: Mapping[str, Any]
) -> Edit:
    module_name, _, class_name = KINDS[kind].rpartition(".")
    edit_class = getattr(import_module(f"{__package__}.{module_name}"), class_name)
    edit: Edit = edit_class.from_contents(tensors, fields, diagnostics)
    return edit


@dataclass(frozen=True)
class EditChain(Edit):
    """Edits of several kinds, one after the other.

    Each finds its text for the bare prompt. All texts are then put before the prompt, and gates are decided
    by what the network makes of the whole: after a text, a codebook may not know the prompt of its key again.
    """

    parts: tuple[Edit, ...]
    diagnostics: Mapping[str, Any]
    kind: ClassVar[str] = "chain"

    @property
    def failed(self) -> bool:
        """Whether all of its parts have."""
        return all(part.failed for part in self.parts)

    def prefixes(self, lm: LanguageModel, prompts: Sequence[str]) -> list[str]:
        """All parts' texts, the latest last: the nearest to the prompt."""
        of_parts = [part.prefixes(lm, prompts) for part in self.parts]
        return ["".join(of_prompt) for of_prompt in zip(*of_parts, strict=True)]

    def interventions(self) -> dict[str, list[Intervention]]:
        """At one module the sum of all deltas, then the gates: a later one has the last word."""
        deltas: dict[str, Delta] = {}
        gates: dict[str, list[Intervention]] = {}
        for part in self.parts:
            for module_name, of_module in part.interventions().items():
                for intervention in of_module:
                    if not isinstance(intervention, Delta):
                        gates.setdefault(module_name, []).append(intervention)
                    elif module_name in deltas:
                        deltas[module_name] = deltas[module_name].plus(intervention)
                    else:
                        deltas[module_name] = intervention
        merged: dict[str, list[Intervention]] = {name: [delta] for name, delta in deltas.items()}
        for module_name, of_module in gates.items():
            merged.setdefault(module_name, []).extend(of_module)
        return merged

    def recognised(
        self, lm: LanguageModel, prompts: Sequence[str], chain: EditChain | None = None
    ) -> list[Recognition] | None:
        """By the latest part that recognises a prompt; None where all parts act after all prompts.

        Entries are numbered within that part. Where none recognises a prompt, the nearness is the last one's.
        """
        whole = self.to(lm.device)
        of_parts = [part.recognised(lm, prompts, whole) for part in whole.parts]
        of_selective_parts = [of_part for of_part in of_parts if of_part is not None]
        if not of_selective_parts:
            return None
        recognised = []
        for of_prompt in zip(*of_selective_parts, strict=True):
            acting = [recognition for recognition in of_prompt if recognition.entry >= 0]
            recognised.append((acting or of_prompt)[-1])
        return recognised

    def check(self, lm: LanguageModel) -> None:
        """Raise ``EditError`` where one of the parts was made for another model."""
        for part in self.parts:
            part.check(lm)

    def to(self, device: str | torch.device) -> EditChain:
        """A copy on another device."""
        return EditChain(tuple(part.to(device) for part in self.parts), self.diagnostics)

    def contents(self) -> tuple[dict[str, Tensor], Any]:
        """The parts' tensors, named by their numbers, and the parts' kinds, fields and diagnostics."""
        tensors = {}
        fields = []
        for number, part in enumerate(self.parts):
            tensors_of_part, fields_of_part = part.contents()
            for name, tensor in tensors_of_part.items():
                tensors[f"{number}|{name}"] = tensor
            fields.append([part.kind, fields_of_part, dict(part.diagnostics)])
        return tensors, fields

    @classmethod
    def from_contents(
        cls, tensors: Mapping[str, Tensor], fields: Any, diagnostics: Mapping[str, Any]
    ) -> Self:
        """The chain whose ``contents`` these are."""
        parts = []
        for number, (kind, fields_of_part, diagnostics_of_part) in enumerate(fields):
            tensors_of_part = {
                name.removeprefix(f"{number}|"): tensor
                for name, tensor in tensors.items()
                if name.startswith(f"{number}|")
            }
            parts.append(_made(kind, tensors_of_part, fields_of_part, diagnostics_of_part))
        return cls(tuple(parts), diagnostics)


def chain_parts(edit: Edit) -> tuple[Edit, ...]:
    """A chain's parts, or the edit itself."""
    return edit.parts if isinstance(edit, EditChain) else (edit,)
