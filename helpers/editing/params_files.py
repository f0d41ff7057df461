"""The params files of models: which one fits a model, and what any model can be given instead."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from helpers.editing.editors import EditorError
from helpers.models.shapes import SHAPE_PREFIX
from helpers.models.weights import EMBEDDED_NAMES, HUB_NAMES
from helpers.paths import PARAMS, require_checkout
from helpers.records import load_yaml

GENERIC = "generic"
FOLDER = PARAMS / "models"
_GENERIC_FILE = PARAMS / "generic.yaml"
OTHER_WAYS = f"or pass preset={GENERIC!r} (untuned), or a file, dictionary or object with the hyperparameters"


class Size(NamedTuple):
    """What generic hyperparameters depend on."""

    blocks: int
    hidden_size: int


def model_file(model: str) -> Path:
    """The params file of a model, whether it exists or not.

    A local folder takes the file whose ``configuration`` is its own, whatever the folder is called.
    A hub name takes the file of its short name or last component. A random model
    (``shape:llama3-8b``) takes that of the model, or instruct model, that it imitates.

    Raises:
        EditorError: a local folder that no file fits.
    """
    require_checkout()
    folder = Path(model).expanduser()
    if model and (folder / "config.json").is_file():
        return _fitting_file(model, configuration_of(folder))
    short = {hub: name for name, hub in HUB_NAMES.items()} | EMBEDDED_NAMES
    short_name = short.get(model, model)
    name = Path(short_name.removeprefix(SHAPE_PREFIX)).name.lower()
    path = FOLDER / f"{name}.yaml"
    if short_name.startswith(SHAPE_PREFIX) and not path.exists():
        return path.with_name(f"{name}-instruct.yaml")
    return path


def configuration_of(folder: Path) -> dict[str, Any]:
    """Architecture and sizes of a local model, as the params files' ``configuration`` has them."""
    content = json.loads((folder / "config.json").read_text("utf-8"))
    content = content.get("text_config") or content
    hidden = content.get("hidden_size") or content.get("n_embd")
    return {
        "model_type": content.get("model_type"),
        "blocks": content.get("num_hidden_layers") or content.get("n_layer"),
        "hidden_size": hidden,
        "intermediate_size": content.get("intermediate_size")
        or content.get("n_inner")
        or (hidden and 4 * hidden),
    }


def check_fits(model: str, size: Size) -> None:
    """Refuse a params file that was chosen by a hub name although the model is another one.

    Raises:
        EditorError: naming both sizes.
    """
    path = model_file(model)
    if "/" in model and path.exists():
        known = content_of(path)["configuration"]
        if (known["blocks"], known["hidden_size"]) != size:
            raise EditorError(
                f"{path.name} fits {model} by name only: it is for {known['blocks']} blocks of width"
                f" {known['hidden_size']}, the model has {size.blocks} of {size.hidden_size};"
                f" {OTHER_WAYS}"
            )


def generic_values(section: str, size: Size) -> dict[str, Any]:
    """An editor's generic preset, its layers and regularisation at the model's depth and width.

    Raises:
        EditorError: the editor has none, since it needs a trained network.
    """
    if not has_generic(section):
        raise EditorError(f"{section} has no generic preset; it has to be trained first")
    values = dict(content_of(_GENERIC_FILE)["editors"][section])
    if "depth" in values:
        many = min(values.pop("blocks", 1), size.blocks)
        first = min(round(values.pop("depth") * size.blocks), size.blocks - many)
        values["layers"] = list(range(first, first + many))
    if "mom2_update_weight_per_width" in values:
        values["mom2_update_weight"] = values.pop("mom2_update_weight_per_width") * size.hidden_size
    return values


def has_generic(section: str) -> bool:
    """Whether an editor has a generic preset."""
    return section in content_of(_GENERIC_FILE)["editors"]


def _fitting_file(model: str, configuration: Mapping[str, Any]) -> Path:
    """The file of a local folder's configuration, that of its name first.

    Raises:
        EditorError: none has it.
    """
    named = FOLDER / f"{Path(model).name.lower()}.yaml"
    paths = sorted(FOLDER.glob("*.yaml"), key=lambda path: (path != named, path))
    contents = {path: content_of(path) for path in paths}
    known = {path: c["configuration"] for path, c in contents.items() if "configuration" in c}
    for path, theirs in known.items():
        if theirs == configuration:
            return path
    alike = [
        path.name
        for path, theirs in known.items()
        if theirs["model_type"] == configuration["model_type"]
    ]
    copy = f"copy {alike[0]}" if alike else "copy one"
    only_name = f", though {named.name} has its name" if named.exists() else ""
    raise EditorError(
        f"no hyperparameters fit {model}, {configuration}{only_name}: {copy} in {FOLDER}, with this"
        f" configuration and layers of its own; {OTHER_WAYS}"
    )


def content_of(path: Path) -> dict[str, Any]:
    """A params file: ``configuration`` and ``editors``.

    Raises:
        EditorError: the file holds something else.
    """
    try:
        content = load_yaml(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise EditorError(f"{path} is no YAML ({error}); correct or remove it") from error
    if not isinstance(content, dict):
        raise EditorError(f"{path} holds no hyperparameters; correct or remove it")
    return content
