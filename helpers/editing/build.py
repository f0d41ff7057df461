"""A method's name becomes a ready editor: hyperparameters, context templates and statistics put together.

>>> editor = build_editor("memit+app", language_model, preset="tuned")
>>> updates = editor.edit(requests)
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from helpers.editing.app import SYMBOLS, App
from helpers.editing.contexts import context_templates
from helpers.editing.corpus import corpus_named
from helpers.editing.editor import Editor
from helpers.editing.editors import EditorError, NamedEditor, Variant, method_label, split_method
from helpers.editing.memo import Memo, memoised
from helpers.editing.mend import MendHyperparameters, UntrainedError, load_network, network_file
from helpers.editing.moments import SecondMoment, second_moment
from helpers.editing.presets import (
    Preset,
    Size,
    WrapperHyperparameters,
    app_values,
    base_preset,
    read_hyperparameters,
)
from helpers.editing.rect_prune import Wrapper
from helpers.models.language_model import LanguageModel


def build_editor(
    method: str,
    language_model: LanguageModel,
    *,
    preset: Preset,
    app: App | bool | None = None,
    corpus: str = "self",
    seed: int = 0,
    overrides: Mapping[str, Any] | None = None,
    progress: bool = False,
    memo: Memo | None = None,
) -> Editor:
    """Assemble an editor by name.

    Args:
        method: one of ``EDITORS``, as it is or with ``+app``, ``+all`` or ``+all-sum``.
        language_model: its name chooses ``params/models/<model>.yaml``.
        preset: ``paper``, ``original``, ``easyedit`` or ``tuned``, where the file has it; ``generic``
            for any model; a YAML file, a dictionary or an object with the hyperparameters.
        app: APP's coefficients; True, or ``+app`` alone, takes those of the file.
        corpus: corpus of the second moments (see ``helpers.editing.corpus``).
        seed: of the context templates and the corpus.
        overrides: single hyperparameters to replace.
        memo: shared by editors that are to find second moments and vectors once.

    Raises:
        EditorError: an unknown editor, preset or key, or no coefficients for ``app=True``.
        NetworkError: no trained network of this model for MEND.
        CorpusError: an unknown corpus, where second moments have to be made.
    """
    editor, suffix = split_method(method)
    app = (app or suffix == "app") or None
    if app and not editor.loss:
        raise EditorError(f"{editor.label} optimises no loss that APP could join; leave APP out")
    shared: dict[str, Any] = {"corpus": corpus, "seed": seed, "progress": progress, "memo": memo}
    name, layout = language_model.name, language_model.layout
    size = Size(layout.blocks, layout.hidden_size)
    if issubclass(editor.hyperparameters, WrapperHyperparameters):
        choice: dict[str, Any] = {"app": app, "overrides": overrides or {}, **shared}
        return _upon_base(editor, suffix, language_model, preset, size, **choice)
    changes, app = _with_app(editor, name, preset, size, app)
    values = {**changes, **(overrides or {})}
    hyperparameters = read_hyperparameters(editor.name, name, preset, size=size, **values)
    parts = {"language_model": language_model, "hyperparameters": hyperparameters, "app": app}
    parts |= {"targets": suffix if suffix.startswith("all") else "new", **shared}
    takes = {field.name for field in fields(editor.kind)}
    if "contexts" in takes:
        lengths = hyperparameters.context_template_length_params
        start = getattr(hyperparameters, "context_template_start", "words")
        how = {"grouped": editor.kind.grouped, "start": start, "seed": seed}
        parts["contexts"] = context_templates(language_model, lengths, **how)
    if "second_moments" in takes:
        layers = hyperparameters.moment_layers
        parts["second_moments"] = _second_moments(language_model, layers, corpus, seed, memo)
    if "network" in takes:
        parts["network"] = load_network(language_model, hyperparameters)
    built: Editor = editor.kind(**{part: value for part, value in parts.items() if part in takes})
    return built


def build_editors(
    methods: Iterable[str | Variant], language_model: LanguageModel, **options: Any
) -> dict[str, Editor]:
    """Editors by the names of methods or variants, in the order given; what several need is made once.

    MEND is left out with a warning where no network was trained for the model, unless it is alone.
    """
    if isinstance(methods, str):
        raise EditorError(
            f"methods is one text, {methods!r}, where a list is needed: [{methods!r}]"
        )
    variants = [Variant.parse(str(method)) for method in methods]
    options = {"memo": Memo(), **options}
    built: dict[str, Editor] = {}
    for method in (names := dict.fromkeys(variant.method for variant in variants)):
        try:
            built[method] = build_editor(method, language_model, **options)
        except UntrainedError as error:
            if not built and method == list(names)[-1]:
                raise
            warnings.warn(f"{method_label(method)} is left out: {error}", stacklevel=2)
    return {str(v): _changed(built[v.method], v) for v in variants if v.method in built}


def check_method(method: str, model: str, preset: Preset) -> None:
    """Refuse a method that cannot be built for a model by this preset, before the model is loaded.

    Raises:
        EditorError: see ``read_hyperparameters``; or APP has no loss or no coefficients there.
        UntrainedError: MEND has no trained network of this model.
    """
    editor, suffix = split_method(method)
    hyperparameters = read_hyperparameters(editor.name, model, preset)
    if isinstance(hyperparameters, WrapperHyperparameters):
        base = base_preset(editor.name, model, preset)
        check_method(f"{hyperparameters.base}+{suffix}", model, base)
    elif suffix == "app":
        app_values(editor.name, model, preset)
    if isinstance(hyperparameters, MendHyperparameters):
        network_file(model, hyperparameters)


def _upon_base(
    editor: NamedEditor,
    suffix: str,
    language_model: LanguageModel,
    preset: Preset,
    size: Size,
    *,
    overrides: Mapping[str, Any],
    **options: Any,
) -> Editor:
    # The base editor gets the overrides that the wrapper does not know itself.
    own = {k: v for k, v in overrides.items() if k in editor.hyperparameters.model_fields}
    others = {k: v for k, v in overrides.items() if k not in own}
    name = language_model.name
    hyperparameters = read_hyperparameters(editor.name, name, preset, size=size, **own)
    options |= {"preset": base_preset(editor.name, name, preset), "overrides": others}
    base = build_editor(f"{hyperparameters.base}+{suffix}", language_model, **options)
    built: Editor = editor.kind(base, hyperparameters)
    return built


def _with_app(
    editor: NamedEditor, model: str, preset: Preset, size: Size, app: App | bool | None
) -> tuple[dict[str, Any], App | None]:
    """Hyperparameters that change with APP (its stop rule), and APP itself."""
    if not app:
        return {}, None
    values = app_values(editor.name, model, preset, size, needed=app is True)
    known = {name: values.pop(name) for name in SYMBOLS if name in values}
    values.pop("extrapolated", None)
    # What the name implies holds whatever goes with APP.
    return {**values, **editor.values}, App(**known) if app is True else app


def _second_moments(
    language_model: LanguageModel,
    layers: Sequence[int],
    corpus: str,
    seed: int,
    memo: Memo | None,
) -> dict[int, SecondMoment]:
    def make(missing: Sequence[int]) -> list[SecondMoment]:
        made = second_moment(language_model, missing, corpus_named(corpus, seed=seed))
        return [made[layer] for layer in missing]

    how = json.dumps([language_model.fingerprint, corpus, seed])
    return dict(zip(layers, memoised(memo, how, layers, make), strict=True))


def _changed(editor: Editor, variant: Variant) -> Editor:
    if not variant.field or editor.app is None:
        return editor
    if isinstance(editor, Wrapper):  # its APP is that of the editor it changes
        return replace(editor, base=_changed(editor.base, variant))
    return replace(editor, app=variant.changed(editor.app))  # type: ignore[type-var]
