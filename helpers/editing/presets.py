"""Presets: an editor's hyperparameters by name, from a file, or as they are given.

A name (``paper``, ``tuned``) is looked up in ``params/models/<model>.yaml``, whose ``configuration`` states
which models it fits, in the section of the editor's name, or else of its class's; ``generic`` places
layers by relative depth for any model, untuned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from helpers.editing.editors import EditorError, split_method
from helpers.editing.icd import Icd
from helpers.models.shapes import SHAPE_PREFIX
from helpers.models.weights import EMBEDDED_NAMES, HUB_NAMES
from helpers.paths import PARAMS
from helpers.records import did_you_mean, read_json, read_text, read_yaml

GENERIC = "generic"
FOLDER = PARAMS / "models"
_GENERIC_FILE = PARAMS / "generic.yaml"
_OTHER_WAYS = "or pass preset='generic' (untuned), a file or a dictionary of hyperparameters"


class Hyperparameters(BaseModel):
    """Base: unknown keys are errors, values are checked, instances are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @property
    def moment_layers(self) -> tuple[int, ...]:
        """Layers whose second moments the edit is solved with; none by default."""
        return ()

    @property
    def measured_requests(self) -> int:
        """Held-out requests that statistics are measured on before the first edit (``held_out``)."""
        return 0


def later_field(default: Any, **checks: Any) -> Any:
    """A field that came after results were published: at its default it is in no settings.

    So what was kept without it keeps its key.
    """
    return Field(default=default, exclude_if=lambda value: value == default, **checks)


class LayerHyperparameters(Hyperparameters):
    """Hyperparameters of an editor that is told which blocks to edit."""

    layers: tuple[int, ...] = Field(min_length=1)

    @field_validator("layers")
    @classmethod
    def _ascending(cls, layers: tuple[int, ...]) -> tuple[int, ...]:
        if list(layers) != sorted(set(layers)):
            raise ValueError("layers must be in ascending order, each named once")
        return layers


class LossHyperparameters(LayerHyperparameters):
    """Hyperparameters of an editor with a loss. ``eos``: the target ends with the end-of-text token."""

    eos: bool = later_field(False)


class VectorHyperparameters(LossHyperparameters):
    """Hyperparameters that ROME, MEMIT and AlphaEdit share.

    ``v_loss_layer`` is none of them: it is the last in all published settings. With ``top_evaluations`` the
    vector is also done at this evaluation, counted among those at which every token of the target is the
    most probable one in every context (ENCORE).
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
    top_evaluations: int | None = later_field(None, gt=0)

    @property
    def moment_layers(self) -> tuple[int, ...]:
        """All edited layers."""
        return self.layers


class WrapperHyperparameters(Hyperparameters):
    """Hyperparameters of an editor that changes the updates of another one, ``base``."""

    base: str


# A preset's name, or one editor's hyperparameters, as a YAML file or a mapping.
Preset = str | Path | Mapping[str, Any]
ModelSize = tuple[int, int]  # number of blocks, hidden size: what generic hyperparameters depend on


def read_hyperparameters(
    editor: str,
    model: str,
    preset: Preset,
    *,
    model_size: ModelSize | None = None,
    **overrides: Any,
) -> Any:
    """An editor's hyperparameters; ``overrides`` replace also values that the editor's name implies."""
    named_editor, _ = split_method(editor)
    hyperparameters_class = named_editor.hyperparameters
    values = preset_values(editor, model, preset, model_size)
    names_in_preset = values.keys() - {"app", "icd", "source"}
    if issubclass(hyperparameters_class, WrapperHyperparameters) and not _is_named(preset):
        names_in_preset &= hyperparameters_class.model_fields.keys()
    of_preset = {name: value for name, value in values.items() if name in names_in_preset}
    try:
        return hyperparameters_class(**{**of_preset, **named_editor.values, **overrides})
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
        raise EditorError(
            f"{_words_for_preset(editor, model, preset)}: {'; '.join(faults)}"
        ) from error


def preset_values(
    editor: str, model: str, preset: Preset, model_size: ModelSize | None = None
) -> dict[str, Any]:
    """One preset of an editor as it is written, ``app``, ``icd`` and ``source`` included."""
    if isinstance(preset, Mapping):
        return dict(preset)
    if not isinstance(preset, str | Path):
        raise EditorError(f"no preset {preset!r:.60}: give the name of one, {_OTHER_WAYS}")
    if not _is_named(preset):
        return content_of(Path(preset).expanduser())
    section_name = split_method(editor)[0].section
    if preset == GENERIC and section_name not in _sections_of_any_model():
        return _generic_values(section_name, model_size or (32, 4096))
    section = _section_of(editor, model)
    file_name = section.path.name
    if section_name not in _sections_of_any_model():
        _check_model_file(section.path, model, model_size)
    if preset not in section.presets:
        offered = sorted(section.presets)
        if section_name in _generic_sections():
            offered.append(GENERIC)
        raise EditorError(
            f"{file_name}: {section.name} has no preset {preset!r}{did_you_mean(preset, offered)};"
            f" it has {offered}"
        )
    return dict(section.presets[preset])


def _check_model_file(path: Path, model: str, model_size: ModelSize | None) -> None:
    """Refuse a model without a file, or with that of another model of its name."""
    if not path.exists():
        raise EditorError(
            f"no hyperparameters for model {model!r}: write {path}, a copy of a file there"
            f" for its architecture, with layers of its own; {_OTHER_WAYS}"
        )
    configuration = content_of(path)["configuration"]
    if (
        model_size
        and "/" in model
        and (configuration["blocks"], configuration["hidden_size"]) != model_size
    ):
        raise EditorError(f"{path.name} fits {model} by name only, not in size; {_OTHER_WAYS}")


def app_values(
    editor: str,
    model: str,
    preset: Preset,
    model_size: ModelSize | None = None,
    *,
    needed: bool = True,
) -> dict[str, Any]:
    """APP's coefficients in a preset, and the hyperparameters that change with APP (its stop rule)."""
    values = preset_values(editor, model, preset, model_size).get("app")
    if values is None and needed:
        raise EditorError(
            f"{_words_for_preset(editor, model, preset)} has no coefficients for APP; write them under app"
            ", pass app=App(alpha=…, beta=…, gamma=…), or omit APP"
        )
    return dict(values or {})


def icd_of_preset(
    editor: str, model: str, preset: Preset, model_size: ModelSize | None = None
) -> Icd:
    """icd as a preset has it under ``icd``: what it does not name is as in ``Icd``."""
    values = preset_values(editor, model, preset, model_size).get("icd") or {}
    try:
        return Icd(**values)
    except (TypeError, ValueError) as error:
        raise EditorError(f"{_words_for_preset(editor, model, preset)}: icd: {error}") from error


def default_preset(editor: str, model: str) -> str:
    """``tuned`` where the model's file has it for this editor, else ``paper``, else its first."""
    presets = _section_of(editor, model).presets
    return next((name for name in ("tuned", "paper", *presets) if name in presets), "tuned")


def base_preset(editor: str, model: str, preset: Preset) -> Preset:
    """The preset of an editor's base: the same name; of given values those not its own."""
    if _is_named(preset):
        return preset
    wrapper_fields = split_method(editor)[0].hyperparameters.model_fields
    values = preset_values(editor, model, preset)
    return {name: value for name, value in values.items() if name not in wrapper_fields}


def base_hyperparameters(
    editor: str, model: str, preset: Preset, *, model_size: ModelSize | None = None
) -> Any:
    """Hyperparameters of the editor that makes the updates: RECT's and PRUNE's base, or itself."""
    hyperparameters = read_hyperparameters(editor, model, preset, model_size=model_size)
    if not isinstance(hyperparameters, WrapperHyperparameters):
        return hyperparameters
    preset_of_base = base_preset(editor, model, preset)
    return base_hyperparameters(hyperparameters.base, model, preset_of_base, model_size=model_size)


def preset_words(model: str, preset: str, methods: Iterable[str]) -> str:
    """A preset as captions name it: with the editors whose APP coefficients are another model's."""
    if preset == GENERIC:
        return f"{GENERIC} (untuned: layers by relative depth)"
    carried = []
    for editor in (name.partition("+")[0] for name in methods if "+app" in name):
        section = _section_of(editor, model)
        if base := section.presets.get(preset, {}).get("base"):
            section = _section_of(base, model)
        if section.presets.get(preset, {}).get("app", {}).get("extrapolated"):
            carried.append(section.name)
    editors = ", ".join(dict.fromkeys(carried))
    return f"{preset} (APP's coefficients extrapolated: {editors})" if editors else preset


def model_file(model: str) -> Path:
    """The params file of a model, whether it exists or not.

    For a local folder it is the file with the same configuration, else that of the short name or of the
    name's last component; for ``shape:llama3-8b`` that of LLaMA-3 8B.
    """
    folder = Path(model).expanduser()
    if model and (folder / "config.json").is_file():
        return _fitting_file(folder)
    short = {hub: name for name, hub in HUB_NAMES.items()} | EMBEDDED_NAMES
    short_name = short.get(model, model)
    name = Path(short_name.removeprefix(SHAPE_PREFIX)).name.lower()
    path = FOLDER / f"{name}.yaml"
    if short_name.startswith(SHAPE_PREFIX) and not path.exists():
        return path.with_name(f"{name}-instruct.yaml")
    return path


def content_of(path: Path) -> dict[str, Any]:
    """A params file (``configuration`` and ``editors``), or a file of one editor's hyperparameters."""
    if not path.is_file():
        raise EditorError(f"no file {path} with hyperparameters")
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise EditorError(f"{path} holds no hyperparameters; correct or remove it")
    return content


def _is_named(preset: Preset) -> bool:
    return isinstance(preset, str) and not preset.endswith((".yaml", ".yml"))


class _Section(NamedTuple):
    """An editor's section of a model's file, and the presets in it; none where there is no file."""

    path: Path
    name: str
    presets: dict[str, Any]


def _section_of(editor: str, model: str) -> _Section:
    section_name = split_method(editor)[0].section
    if section_name in _sections_of_any_model():
        presets = _sections_of_any_model()[section_name]
        return _Section(_GENERIC_FILE, section_name, presets)
    path = model_file(model)
    sections = content_of(path)["editors"] if path.exists() else {}
    editor_name = editor.partition("+")[0]
    name = editor_name if editor_name in sections else section_name
    return _Section(path, name, sections.get(name, {}))


def _words_for_preset(editor: str, model: str, preset: Preset) -> str:
    # Where a preset is, for messages.
    if _is_named(preset) and preset != GENERIC:
        section = _section_of(editor, model)
        return f"{section.path.name}: {section.name}.{preset}"
    return str(preset) if isinstance(preset, str | Path) else f"{editor}'s hyperparameters"


def _generic_sections() -> dict[str, Any]:
    """The generic presets, by the editors' sections."""
    sections: dict[str, Any] = content_of(_GENERIC_FILE)["editors"]
    return sections


def _sections_of_any_model() -> dict[str, Any]:
    """Presets that do not depend on the model, by the editors' sections."""
    sections: dict[str, Any] = content_of(_GENERIC_FILE)["of_any_model"]
    return sections


def _generic_values(section: str, model_size: ModelSize) -> dict[str, Any]:
    sections = _generic_sections()
    if section not in sections:
        raise EditorError(
            f"{section} has no generic preset: omit it, or give the model a section {section} in"
            " params/models" + (" and run python -m tools.train_mend" if section == "mend" else "")
        )
    values = dict(sections[section])
    blocks, hidden_size = model_size
    if "depth" in values:
        edited_blocks = min(values.pop("blocks", 1), blocks)
        first = min(round(values.pop("depth") * blocks), blocks - edited_blocks)
        values["layers"] = list(range(first, first + edited_blocks))
    if per_width := values.pop("mom2_update_weight_per_width", None):
        values["mom2_update_weight"] = per_width * hidden_size
    if times_width := values.pop("lr_times_width", None):
        values["lr"] = times_width / hidden_size
    return values


def _fitting_file(folder: Path) -> Path:
    file = folder / "config.json"
    content = read_json(read_text(file), str(file))
    content = content.get("text_config") or content
    hidden = content.get("hidden_size") or content.get("n_embd")
    width = content.get("intermediate_size") or content.get("n_inner")
    configuration = {
        "model_type": content.get("model_type"),
        "blocks": content.get("num_hidden_layers") or content.get("n_layer"),
        "hidden_size": hidden,
        "intermediate_size": width or (hidden and 4 * hidden),
    }
    for path in sorted(FOLDER.glob("*.yaml")):
        if content_of(path).get("configuration") == configuration:
            return path
    raise EditorError(
        f"no hyperparameters fit {folder}, {configuration}: copy a file in {FOLDER}, with"
        f" this configuration and layers of its own; {_OTHER_WAYS}"
    )
