"""Hyperparameters of every editor, by model and preset, under the ROME family's key names."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from helpers.models.names import HUB_NAMES, SHAPE_PREFIX
from helpers.paths import PARAMS


class HyperparameterError(ValueError):
    """Raised for a model, editor, preset or key that does not exist, naming file and remedy."""


class Hyperparameters(BaseModel):
    """Base: unknown keys are errors, values are checked, instances are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class LayerHyperparameters(Hyperparameters):
    """Those of an editor that is told which blocks to edit."""

    layers: tuple[int, ...] = Field(min_length=1)

    @field_validator("layers")
    @classmethod
    def _ascending(cls, layers: tuple[int, ...]) -> tuple[int, ...]:
        if list(layers) != sorted(set(layers)):
            raise ValueError("layers must be in ascending order, each named once")
        return layers


class VectorHyperparameters(LayerHyperparameters):
    """What ROME, MEMIT and AlphaEdit share: the optimised vector.

    ``v_loss_layer`` is not here: the loss is read from the model's own logits, as all published
    settings amount to.
    """

    v_num_grad_steps: int = Field(gt=0)
    v_lr: float = Field(gt=0)
    v_weight_decay: float = Field(ge=0)
    clamp_norm_factor: float = Field(gt=0)
    kl_factor: float = Field(ge=0)
    context_template_length_params: tuple[tuple[int, int], ...]
    context_template_start: Literal["words", "end_of_text"] = "words"
    stop_on: Literal["nll", "total"] = "total"
    stop_threshold: float = 0.05

    @property
    def moment_layers(self) -> tuple[int, ...]:
        """Layers whose second moments the edit is solved with."""
        return self.layers


class RomeHyperparameters(VectorHyperparameters):
    """ROME (one layer). ``rome_key`` names the key in the denominator: the bare prompt's (the code
    most people ran) or the averaged one (the equation; R-ROME).
    """

    mom2_adjustment: bool = True
    rome_key: Literal["bare", "averaged"] = "bare"

    @property
    def moment_layers(self) -> tuple[int, ...]:
        """The layer, unless the key is used as it is."""
        return self.layers if self.mom2_adjustment else ()

    @model_validator(mode="after")
    def _one_layer(self) -> Self:
        if len(self.layers) != 1:
            raise ValueError("ROME edits exactly one layer")
        return self


class MemitHyperparameters(VectorHyperparameters):
    """MEMIT: consecutive layers; ``mom2_update_weight`` (lambda) weighs the second moment."""

    mom2_update_weight: float = Field(gt=0)


class AlphaEditHyperparameters(VectorHyperparameters):
    """AlphaEdit: directions with a second moment below ``nullspace_threshold`` are free to change.

    The threshold is absolute, so the dimension it leaves depends on the model's scale; it is
    reported with every edit. ``L2`` is the ridge added to the keys' Gram matrix.
    """

    nullspace_threshold: float = Field(gt=0)
    L2: float = Field(gt=0)


class RectHyperparameters(Hyperparameters):
    """RECT: ``keep`` is the share of each matrix's entries whose change survives."""

    base: Literal["memit", "rome"] = "memit"
    keep: float = Field(default=0.4, gt=0, le=1)


class PruneHyperparameters(Hyperparameters):
    """PRUNE: how singular values above the weight's largest one are drawn in.

    ``log`` with base a maps s to log_a(s) - log_a(s_max) + s_max, ``linear`` to (s + s_max) / 2.
    ``prune_compat="added"`` adds the restrained update to the full one, as one public port does.
    """

    base: Literal["memit", "rome", "alphaedit", "rect", "mend"] = "memit"
    restraint: Literal["log", "linear"] = "log"
    log_base: float = Field(default=math.e, gt=1)
    prune_compat: Literal["replaced", "added"] = "replaced"


def model_file(model: str) -> Path:
    """The params file of a model; local folders and hub names use their last component.

    A random model (``shape:llama3-8b``) takes the file of the model, or instruct model, that it
    imitates; a hub name of ``HUB_NAMES`` that of its short name.
    """
    short = {hub: name for name, hub in HUB_NAMES.items()}.get(model, model)
    name = Path(short.removeprefix(SHAPE_PREFIX)).name.lower()
    path = PARAMS / "models" / f"{name}.yaml"
    if short.startswith(SHAPE_PREFIX) and not path.exists():
        return path.with_name(f"{name}-instruct.yaml")
    return path


def preset_values(editor: str, model: str, preset: str) -> dict[str, Any]:
    """One preset as ``params/models/<model>.yaml`` has it, ``app`` and ``source`` included.

    Raises:
        HyperparameterError: no file, section or preset of that name.
    """
    path = model_file(model)
    if not path.exists():
        known = ", ".join(sorted(p.stem for p in path.parent.glob("*.yaml")))
        raise HyperparameterError(
            f"no hyperparameters for model {model!r}: write {path} (known models: {known})"
        )
    sections = yaml.safe_load(path.read_text(encoding="utf-8"))["editors"]
    if editor not in sections:
        raise HyperparameterError(
            f"{path.name} has no editor {editor!r}; it has {sorted(sections)}"
        )
    presets = sections[editor]
    if preset not in presets:
        raise HyperparameterError(
            f"{path.name}: {editor} has no preset {preset!r}; it has {sorted(presets)}"
        )
    return dict(presets[preset])


_SECTIONS = {"ft-l": "ft", "ft-m": "ft", "r-rome": "rome"}  # the others are called as they are


def preset_words(model: str, preset: str, methods: Iterable[str]) -> str:
    """A preset as captions name it: with the editors whose APP coefficients are another model's.

    >>> preset_words("llama2-7b", "paper", ["rome+app", "alphaedit", "alphaedit+app"])
    "paper (APP's coefficients extrapolated: alphaedit)"
    """
    path = model_file(model)
    editors = yaml.safe_load(path.read_text("utf-8"))["editors"] if path.exists() else {}
    carried = []
    for name in methods:
        editor, _, suffix = name.partition("+")
        section = _SECTIONS.get(editor, editor)
        section = editors.get(section, {}).get(preset, {}).get("base", section)
        coefficients = editors.get(section, {}).get(preset, {}).get("app") or {}
        if suffix.startswith("app") and coefficients.get("extrapolated"):
            carried.append(section)
    named = ", ".join(dict.fromkeys(carried))
    return f"{preset} (APP's coefficients extrapolated: {named})" if named else preset


def read_hyperparameters(
    editor: str, kind: type[Hyperparameters], model: str, preset: str, **overrides: Any
) -> Any:
    """Hyperparameters of one editor from ``params/models/<model>.yaml``.

    Args:
        editor: section of the file, e.g. ``"rome"``.
        kind: the class to validate with.
        model: model name.
        preset: ``paper``, ``original``, ``easyedit``, ``tuned``, or what the file has.
        overrides: single values to replace.

    Raises:
        HyperparameterError: no file, section, preset or key of that name, or a bad value.
    """
    values = preset_values(editor, model, preset)
    values = {k: v for k, v in values.items() if k not in ("app", "source")}
    where = f"{model_file(model).name}: {editor}.{preset}"
    return validated(kind, {**values, **overrides}, where=where)


def validated(kind: type[Hyperparameters], values: dict[str, Any], *, where: str) -> Any:
    """Build hyperparameters, turning validation errors into one readable message."""
    try:
        return kind(**values)
    except ValidationError as error:
        lines = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise HyperparameterError(f"{where}: {lines}") from error
