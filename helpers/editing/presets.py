"""Presets: an editor's hyperparameters by name, from a file, or as they are given.

A name (``paper``, ``tuned``) is looked up in ``params/models/<model>.yaml``, whose ``configuration`` says
which models it fits, in the section of the editor's name, or else of its class's; ``generic`` places
layers by relative depth for any model, untuned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from helpers.editing.editors import EditorError, split_method
from helpers.editing.hyperparameters import (
    Hyperparameters,
    WrapperHyperparameters,
)
from helpers.editing.params_files import (
    GENERIC,
    OTHER_WAYS,
    Size,
    content_of,
    generic_values,
    has_generic,
    model_file,
)
from helpers.records import load_yaml

Preset = str | Path | Mapping[str, Any] | Hyperparameters
"""A preset's name, a YAML file with one editor's hyperparameters, or these themselves."""

_NOT_HYPERPARAMETERS = ("app", "source")


_ANY_SIZE = Size(32, 4096)  # to check values before the model is known


def preset_values(
    editor: str, model: str, preset: Preset, size: Size = _ANY_SIZE
) -> dict[str, Any]:
    """One preset of an editor as it is written, ``app`` and ``source`` included.

    Raises:
        EditorError: no editor, file, section or preset of that name, or no such file.
    """
    if isinstance(preset, Hyperparameters):
        return preset.model_dump()
    if isinstance(preset, Mapping):
        return dict(preset)
    if isinstance(preset, Path) or preset.endswith((".yaml", ".yml")):
        return _of_file(Path(preset).expanduser())
    if preset == GENERIC:
        return generic_values(split_method(editor)[0].section, size)
    path = model_file(model)
    if not path.exists():
        known = ", ".join(sorted(p.stem for p in path.parent.glob("*.yaml")))
        raise EditorError(
            f"no hyperparameters for model {model!r} (known models: {known}): write {path}, a copy of"
            f" one of its architecture with layers of its own; {OTHER_WAYS}"
        )
    sections = content_of(path)["editors"]
    section = _section(editor, sections)
    if section not in sections:
        raise EditorError(f"{path.name} has no editor {section!r}; it has {sorted(sections)}")
    presets = sections[section]
    if preset not in presets:
        offered = sorted(presets) + [GENERIC] * has_generic(section)
        raise EditorError(f"{path.name}: {section} has no preset {preset!r}; it has {offered}")
    return dict(presets[preset])


def is_of_model(preset: Preset) -> bool:
    """Whether a preset is one of those that a model's own file has."""
    return _is_named(preset) and preset != GENERIC


def _is_named(preset: Preset) -> bool:
    """Whether a preset is a name rather than the values themselves or their file."""
    return isinstance(preset, str) and not preset.endswith((".yaml", ".yml"))


def default_preset(editor: str, model: str) -> str:
    """``tuned`` where the model's file has it for this editor, else ``paper``, else its first.

    Raises:
        EditorError: no editor or file of that name.
    """
    path = model_file(model)
    sections = content_of(path)["editors"] if path.exists() else {}
    presets = sections.get(_section(editor, sections), {})
    return next((name for name in ("tuned", "paper", *presets) if name in presets), "tuned")


def read_hyperparameters(
    editor: str, model: str, preset: Preset, *, size: Size = _ANY_SIZE, **overrides: Any
) -> Any:
    """Hyperparameters of an editor, an instance of its entry's class.

    Args:
        editor: name of the editor, e.g. ``"ft-m"``.
        preset: a name of the model's file, ``generic``, a YAML file, or the values themselves.
        size: of the model, for ``generic``.
        overrides: single values to replace, also those that the editor's name stands for.

    Raises:
        EditorError: no editor, file, section, preset or key of that name, or a bad value.
    """
    values = preset_values(editor, model, preset, size)
    values = {k: v for k, v in values.items() if k not in _NOT_HYPERPARAMETERS}
    known = split_method(editor)[0]
    if issubclass(known.hyperparameters, WrapperHyperparameters) and not _is_named(preset):
        values = {k: v for k, v in values.items() if k in known.hyperparameters.model_fields}
    try:
        return known.hyperparameters(**{**values, **known.values, **overrides})
    except ValidationError as error:
        lines = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise EditorError(f"{_where(editor, model, preset)}: {lines}") from error


def check_preset(method: str, model: str, preset: Preset) -> None:
    """Refuse a method that cannot be built for a model by this preset.

    Args:
        method: an editor, as it is or with ``+app`` or ``+all``.

    Raises:
        EditorError: see ``read_hyperparameters``; or APP has no loss or no coefficients there.
    """
    editor, suffix = split_method(method)
    name = editor.name
    hyperparameters = read_hyperparameters(name, model, preset)
    if isinstance(hyperparameters, WrapperHyperparameters):
        base = base_preset(name, model, preset)
        check_preset(f"{hyperparameters.base}+{suffix}", model, base)
    elif suffix == "app" and "app" not in preset_values(name, model, preset):
        raise EditorError(
            f"{_where(name, model, preset)} has no coefficients for APP; write them under app (alpha,"
            " beta, gamma), or leave APP out"
        )


def moment_layers(editor: str, model: str, preset: Preset) -> tuple[int, ...]:
    """Layers whose second moments an editor needs, told before it is built: making them takes minutes.

    Raises:
        EditorError: the model's params file has no such editor or preset.
    """
    layers: tuple[int, ...] = base_hyperparameters(editor, model, preset).moment_layers
    return layers


def base_hyperparameters(editor: str, model: str, preset: Preset) -> Any:
    """Those of the editor that makes the updates: RECT's and PRUNE's base, or the editor itself."""
    found = read_hyperparameters(editor, model, preset)
    if not isinstance(found, WrapperHyperparameters):
        return found
    return base_hyperparameters(found.base, model, base_preset(editor, model, preset))


def base_preset(editor: str, model: str, preset: Preset) -> Preset:
    """The preset of an editor's base: the same name; of given values those that are not its own.

    Where no others are given, the base takes what the model's file recommends.
    """
    if _is_named(preset):
        return preset
    kind = split_method(editor)[0].hyperparameters
    values = preset_values(editor, model, preset)
    others = {k: v for k, v in values.items() if k not in kind.model_fields}
    if set(others) - set(_NOT_HYPERPARAMETERS):
        return others
    return default_preset(read_hyperparameters(editor, model, preset).base, model)


def preset_words(model: str, preset: str, methods: Iterable[str]) -> str:
    """A preset as captions name it: with the editors whose APP coefficients are another model's.

    >>> preset_words("llama2-7b", "paper", ["rome+app", "alphaedit", "alphaedit+app"])
    "paper (APP's coefficients extrapolated: alphaedit)"
    """
    if preset == GENERIC:
        return f"{GENERIC} (untuned: layers by relative depth)"
    path = model_file(model)
    sections = content_of(path)["editors"] if path.exists() else {}
    carried = []
    for name in methods:
        editor, _, suffix = name.partition("+")
        section = _section(editor, sections)
        section = sections.get(section, {}).get(preset, {}).get("base", section)
        coefficients = sections.get(section, {}).get(preset, {}).get("app") or {}
        if suffix.startswith("app") and coefficients.get("extrapolated"):
            carried.append(section)
    named = ", ".join(dict.fromkeys(carried))
    return f"{preset} (APP's coefficients extrapolated: {named})" if named else preset


def _section(editor: str, sections: Mapping[str, Any]) -> str:
    """Where a file has an editor: under its own name, or that of its class, whose editors share it."""
    return editor if editor in sections else split_method(editor)[0].section


def _where(editor: str, model: str, preset: Preset) -> str:
    """Where a preset stands, for messages."""
    if is_of_model(preset):
        path = model_file(model)
        return f"{path.name}: {_section(editor, content_of(path)['editors'])}.{preset}"
    return str(preset) if isinstance(preset, str | Path) else f"{editor}'s hyperparameters"


def _of_file(path: Path) -> dict[str, Any]:
    """The hyperparameters that a file of the user's holds.

    Raises:
        EditorError: no such file, or it holds something else.
    """
    if not path.is_file():
        raise EditorError(f"no file {path} with hyperparameters")
    content = load_yaml(path.read_text("utf-8"))
    if not isinstance(content, dict) or "editors" in content:
        raise EditorError(
            f"{path} must hold one editor's hyperparameters, a line each, such as `layers: [5]`"
        )
    return content
