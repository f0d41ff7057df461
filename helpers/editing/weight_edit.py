"""Edits of weights: what is added to which matrices, and how it is written into a model.

``write`` and ``apply`` write the weights. Everything else runs a model under an edit without touching
them (``running.under``).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from helpers.editing.edit import Edit, EditError
from helpers.editing.interventions import Delta, Dense, LowRank, Masked
from helpers.models import LanguageModel
from helpers.models.state import in_own_state

# Of weights that can be added to. Eight bits or fewer are codes of a quantised model, float8's too: what
# they mean depends on scales that are kept elsewhere.
WRITABLE = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
PLAIN = (Tensor, nn.Parameter)  # other classes, such as a quantised tensor's, encode their numbers
_DELTAS: dict[str, type[Delta]] = {kind.__name__: kind for kind in (LowRank, Masked, Dense)}


@dataclass(frozen=True)
class WeightEdit(Edit, Mapping[str, Delta]):
    """Deltas by module name, with what the editor recorded: steps, loss terms, norms, flags."""

    deltas: Mapping[str, Delta]
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    kind: ClassVar[str] = "weights"

    def __getitem__(self, module_name: str) -> Delta:
        return self.deltas[module_name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.deltas)

    def __len__(self) -> int:
        return len(self.deltas)

    def interventions(self) -> dict[str, list[Delta]]:
        """The delta of each edited module."""
        return {module_name: [delta] for module_name, delta in self.items()}

    def then(self, later: Edit) -> Edit:
        """Both together; with another edit of weights one edit, the sum (``plus``)."""
        if isinstance(later, WeightEdit):
            return self.plus(later)
        return super().then(later) if self else later

    def plus(self, later: WeightEdit) -> WeightEdit:
        """The sum, which is what two sequential edits leave; the diagnostics are the later one's."""
        sums = dict(self)
        for module_name, delta in later.items():
            sums[module_name] = sums[module_name].plus(delta) if module_name in sums else delta
        return WeightEdit(sums, later.diagnostics)

    def scaled(self, factor: float) -> WeightEdit:
        """The same update, stronger or weaker; the diagnostics are those of the update as it was made."""
        return replace(self, deltas={name: delta.scaled(factor) for name, delta in self.items()})

    def check(self, lm: LanguageModel) -> None:
        """Raise ``EditError`` for a module, bias or shape that this model does not have."""
        for module_name, delta in self.items():
            try:
                fits = lm.weight(module_name).shape == delta.shape
                if delta.bias is not None:
                    fits &= lm.module(module_name).get_parameter("bias").shape == delta.bias.shape
            except AttributeError:
                fits = False
            if not fits:
                raise EditError(
                    f"the edit changes {module_name} of shape {delta.shape}, which {lm.name} does"
                    " not have: it was made for another model"
                )

    def to(self, device: str | torch.device) -> WeightEdit:
        """A copy on another device."""
        moved = {module_name: delta.to(device) for module_name, delta in self.items()}
        return WeightEdit(moved, self.diagnostics)

    def contents(self) -> tuple[dict[str, Tensor], Any]:
        """The deltas' tensors, by module and field, and the deltas' kinds by module."""
        tensors = {
            f"{module_name}|{field_name}": tensor
            for module_name, delta in self.items()
            for field_name, tensor in delta.tensors().items()
        }
        return tensors, {name: type(delta).__name__ for name, delta in self.items()}

    @classmethod
    def from_contents(
        cls, tensors: Mapping[str, Tensor], fields: Any, diagnostics: Mapping[str, Any]
    ) -> Self:
        """The edit whose ``contents`` these are."""
        fields_of_module: dict[str, dict[str, Tensor]] = {}
        for key, tensor in tensors.items():
            module_name, _, field_name = key.rpartition("|")
            fields_of_module.setdefault(module_name, {})[field_name] = tensor
        deltas = {
            module_name: _DELTAS[kind](**fields_of_module[module_name])
            for module_name, kind in fields.items()
        }
        return cls(deltas, diagnostics)


def only_weights(edit: Edit, purpose: str) -> WeightEdit:
    """The edit itself, if it changes weights and nothing else; else an ``EditError`` for the ``purpose``."""
    if not isinstance(edit, WeightEdit):
        raise EditError(
            f"{purpose} takes an edit of weights alone, not a {edit.kind} edit: score and generate"
            " under it instead"
        )
    return edit


@in_own_state
def write(lm: LanguageModel, edit: Edit) -> None:
    """Add an edit to the model's weights for good, in fp32 or finer, rounded to their type once.

    An ``EditError`` where one of them cannot be written (``check_writable``); no weight is changed then.
    """
    weight_edit = only_weights(edit, "writing")
    check_writable(lm, weight_edit)
    with torch.no_grad():
        for module_name, delta in weight_edit.items():
            weight = lm.weight(module_name)
            if not bool(_changed_weight(weight, delta).isfinite().all()):
                raise EditError(
                    f"{module_name}: the edit makes infinite or undefined numbers in {weight.dtype}, so"
                    " nothing was written: make the edit again, or load the model in float32"
                )
        for module_name, delta in weight_edit.items():
            weight = lm.weight(module_name)
            if weight.dtype.itemsize == 2:
                relative_norm = delta.norm() / lm.weight_norm(module_name)
                if relative_norm < 1e-2:  # rounding takes the change
                    warnings.warn(
                        f"{module_name}: a change of {relative_norm:.1e} of the weight's norm is largely lost"
                        f" in {weight.dtype}; write it into float32 weights, or score under the edit",
                        stacklevel=2,
                    )
            weight.copy_(_changed_weight(weight, delta))
            if delta.bias is not None:
                bias = lm.module(module_name).get_parameter("bias")
                bias.add_(delta.bias.to(weight))


def _changed_weight(weight: Tensor, delta: Delta) -> Tensor:
    exact_dtype = torch.promote_types(weight.dtype, torch.float32)
    changed = weight.to(exact_dtype) + delta.dense().to(weight.device, exact_dtype)
    return changed.to(weight.dtype)


@contextmanager
def apply(lm: LanguageModel, edit: Edit) -> Iterator[LanguageModel]:
    """Write an edit into the weights for the duration of a block, then restore them bit-exactly."""
    weight_edit = only_weights(edit, "writing")
    check_writable(lm, weight_edit)
    saved = [(p, p.detach().clone()) for name in weight_edit for p in lm.module(name).parameters()]
    try:
        write(lm, weight_edit)
        yield lm
    finally:
        with torch.no_grad():
            for parameter, value in saved:
                parameter.copy_(value)


def check_writable(lm: LanguageModel, edit: WeightEdit) -> None:
    """Raise ``EditError`` where an edit cannot be added to the model's weights.

    A weight, and a bias that the edit changes, must be a parameter of its module, be a ``PLAIN`` tensor, hold
    floating-point numbers (``WRITABLE``), and be in memory; then ``WeightEdit.check`` must find the edit to
    fit the model. ``running.under`` adds to modules' outputs and asks nothing of the weights.
    """
    modules = dict(lm.network.named_modules())
    for name, delta in edit.items():
        if name not in modules:
            continue  # reported below
        stored = dict(modules[name].named_parameters(recurse=False))
        faults = {"weight": _why_not_writable(stored.get("weight"))}
        if delta.bias is not None and "bias" in stored:
            faults["bias"] = _why_not_writable(stored["bias"])
        for parameter, fault in faults.items():
            if fault:
                raise EditError(
                    f"{name}.{parameter} {fault}, so nothing was written: load the model in floating"
                    " point, or score under the edit"
                )
    edit.check(lm)


def _why_not_writable(stored: Tensor | None) -> str:
    if stored is None:
        return "is no parameter of its module"
    if stored.dtype not in WRITABLE:
        return f"holds {str(stored.dtype).removeprefix('torch.')}, the codes of a quantised model"
    if type(stored) not in PLAIN:
        return f"is a {type(stored).__name__}, whose numbers encode others"
    return "is not in memory (device meta)" if stored.is_meta else ""
