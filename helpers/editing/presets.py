"""Presets: the hyperparameters that ``params/models/<model>.yaml`` has for an editor."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from helpers.editing.hyperparameters import HyperparameterError, WrapperHyperparameters
from helpers.editing.registry import entry
from helpers.models.names import HUB_NAMES, SHAPE_PREFIX
from helpers.paths import PARAMS
from helpers.yaml_text import load_yaml


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
    """One preset of an editor as the model's file has it, ``app`` and ``source`` included.

    Raises:
        HyperparameterError: no editor, file, section or preset of that name.
    """
    section = entry(editor).section
    path = model_file(model)
    if not path.exists():
        known = ", ".join(sorted(p.stem for p in path.parent.glob("*.yaml")))
        raise HyperparameterError(
            f"no hyperparameters for model {model!r}: write {path} (known models: {known})"
        )
    sections = _sections(path)
    if section not in sections:
        raise HyperparameterError(
            f"{path.name} has no editor {section!r}; it has {sorted(sections)}"
        )
    presets = sections[section]
    if preset not in presets:
        raise HyperparameterError(
            f"{path.name}: {section} has no preset {preset!r}; it has {sorted(presets)}"
        )
    return dict(presets[preset])


def read_hyperparameters(editor: str, model: str, preset: str, **overrides: Any) -> Any:
    """Hyperparameters of an editor, an instance of its entry's class.

    Args:
        editor: name of the editor, e.g. ``"ft-m"``.
        preset: ``paper``, ``original``, ``easyedit``, ``tuned``, or what the file has.
        overrides: single values to replace, also those that the editor's name stands for.

    Raises:
        HyperparameterError: no editor, file, section, preset or key of that name, or a bad value.
    """
    values = preset_values(editor, model, preset)
    values = {k: v for k, v in values.items() if k not in ("app", "source")}
    known = entry(editor)
    where = f"{model_file(model).name}: {known.section}.{preset}"
    try:
        return known.hyperparameters(**{**values, **known.values, **overrides})
    except ValidationError as error:
        lines = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise HyperparameterError(f"{where}: {lines}") from error


def check_preset(method: str, model: str, preset: str) -> None:
    """Refuse a method that cannot be built for a model by this preset.

    Args:
        method: an editor, as it is or with ``+app`` or ``+all``.

    Raises:
        HyperparameterError: see ``read_hyperparameters``; or APP has no coefficients there.
    """
    name, _, suffix = method.partition("+")
    hyperparameters = read_hyperparameters(name, model, preset)
    if isinstance(hyperparameters, WrapperHyperparameters):
        check_preset(f"{hyperparameters.base}+{suffix}", model, preset)
    elif suffix == "app" and "app" not in preset_values(name, model, preset):
        raise HyperparameterError(
            f"{model_file(model).name}: {name}.{preset} has no coefficients for APP; write them under"
            " app (alpha, beta, gamma), or leave APP out"
        )


def moment_layers(editor: str, model: str, preset: str) -> tuple[int, ...]:
    """Layers whose second moments an editor needs, told before it is built: making them takes minutes.

    Raises:
        HyperparameterError: the model's params file has no such editor or preset.
    """
    hyperparameters = read_hyperparameters(editor, model, preset)
    if isinstance(hyperparameters, WrapperHyperparameters):
        return moment_layers(hyperparameters.base, model, preset)
    layers: tuple[int, ...] = hyperparameters.moment_layers
    return layers


def preset_words(model: str, preset: str, methods: Iterable[str]) -> str:
    """A preset as captions name it: with the editors whose APP coefficients are another model's.

    >>> preset_words("llama2-7b", "paper", ["rome+app", "alphaedit", "alphaedit+app"])
    "paper (APP's coefficients extrapolated: alphaedit)"
    """
    path = model_file(model)
    sections = _sections(path) if path.exists() else {}
    carried = []
    for name in methods:
        editor, _, suffix = name.partition("+")
        section = entry(editor).section
        section = sections.get(section, {}).get(preset, {}).get("base", section)
        coefficients = sections.get(section, {}).get(preset, {}).get("app") or {}
        if suffix.startswith("app") and coefficients.get("extrapolated"):
            carried.append(section)
    named = ", ".join(dict.fromkeys(carried))
    return f"{preset} (APP's coefficients extrapolated: {named})" if named else preset


def _sections(path: Path) -> dict[str, Any]:
    sections: dict[str, Any] = load_yaml(path.read_text(encoding="utf-8"))["editors"]
    return sections
