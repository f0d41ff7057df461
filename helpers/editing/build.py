"""A method's name becomes a ready editor: hyperparameters, context templates and statistics put together."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from helpers.editing.app import SYMBOLS, App
from helpers.editing.contexts import context_templates
from helpers.editing.corpus import corpus_named
from helpers.editing.editor import Editor, Memo, Wrapper, memoised
from helpers.editing.editors import DOSES, EditorError, Variant, method_label, split_method
from helpers.editing.mend import MendHyperparameters, UntrainedError, load_network, network_file
from helpers.editing.moments import SecondMoment, second_moment
from helpers.editing.presets import (
    Preset,
    WrapperHyperparameters,
    app_values,
    base_preset,
    read_hyperparameters,
)
from helpers.models import LanguageModel
from helpers.models.state import in_own_state


@in_own_state
def build_editor(
    method: str,
    model: LanguageModel,
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
        preset: ``paper``, ``original``, ``easyedit`` or ``tuned``, where the model's file has it;
            ``generic`` for any model; a YAML file or a dictionary with the hyperparameters.
        app: APP's coefficients; True, or ``+app`` alone, takes those of the preset.
        corpus: of the second moments (``helpers.editing.corpus``).
        seed: of the context templates and the corpus.
        memo: shared by editors that are to find second moments and vectors once.

    Raises:
        EditorError: an unknown editor, preset or key, or no coefficients for ``app=True``.
        NetworkError: no trained network of this model for MEND.
    """
    editor, suffix = split_method(method)
    app = (app or suffix == "app") or None
    if app and not editor.loss:
        raise EditorError(f"{editor.label} optimises no loss that APP could join; omit APP")
    values, name = dict(overrides or {}), model.name
    layout = model.layout
    size = layout.blocks, layout.hidden_size
    kind = editor.hyperparameters
    shared: dict[str, Any] = {"corpus": corpus, "seed": seed, "progress": progress, "memo": memo}
    if issubclass(kind, WrapperHyperparameters):
        # The base editor gets the overrides that the wrapper does not know itself.
        own = {key: values.pop(key) for key in kind.model_fields if key in values}
        found = read_hyperparameters(editor.name, name, preset, size=size, **own)
        shared |= {"preset": base_preset(editor.name, name, preset), "overrides": values}
        base = build_editor(f"{found.base}+{suffix}", model, app=app, **shared)
        wrapper: Editor = editor.kind(base, found)
        return wrapper
    if app:
        with_app = app_values(editor.name, name, preset, size, needed=app is True)
        known = {key: with_app.pop(key) for key in SYMBOLS if key in with_app}
        with_app.pop("extrapolated", None)
        app = App(**known) if app is True else app
        # What the name implies holds whatever goes with APP.
        values = {**with_app, **editor.values, **values}
    found = read_hyperparameters(editor.name, name, preset, size=size, **values)
    parts = {"model": model, "hyperparameters": found, "app": app, **shared}
    parts["targets"] = suffix if suffix.startswith("all") else "new"
    takes = {field.name for field in fields(editor.kind)}
    if "contexts" in takes:
        start = getattr(found, "context_template_start", "words")
        how = {"grouped": editor.kind.grouped, "start": start, "seed": seed}
        lengths = found.context_template_length_params
        parts["contexts"] = context_templates(model, lengths, **how)
    if "second_moments" in takes:
        layers = found.moment_layers
        how_made = json.dumps([model.fingerprint, corpus, seed])

        def make(missing: Sequence[int]) -> Iterable[SecondMoment]:
            return second_moment(model, missing, corpus_named(corpus, seed=seed)).values()

        moments = memoised(memo, how_made, layers, make)
        parts["second_moments"] = dict(zip(layers, moments, strict=True))
    if "network" in takes:
        parts["network"] = load_network(model, found)
    built: Editor = editor.kind(**{part: value for part, value in parts.items() if part in takes})
    return built


def build_editors(
    methods: Iterable[str | Variant], model: LanguageModel, **options: Any
) -> dict[str, Editor]:
    """Editors by names of methods or variants; MEND, unless alone, is omitted where it is untrained."""
    variants = [Variant.parse(str(method)) for method in methods]
    options = {"memo": Memo(), **options}
    built: dict[str, Editor] = {}
    for method in (names := dict.fromkeys(variant.method for variant in variants)):
        try:
            built[method] = build_editor(method, model, **options)
        except UntrainedError as error:
            if not built and method == list(names)[-1]:
                raise
            warnings.warn(f"{method_label(method)} is omitted: {error}", stacklevel=2)
    return {str(v): _changed(built[v.method], v) for v in variants if v.method in built}


def _changed(editor: Editor, variant: Variant) -> Editor:
    if not variant.field:
        return editor
    if isinstance(editor, Wrapper):  # what it has is that of the editor it changes
        return replace(editor, base=_changed(editor.base, variant))
    part = "hyperparameters" if variant.field in DOSES else "app"
    known = getattr(editor, part)
    return replace(editor, **{part: type(known)(**variant.changed(vars(known)))})  # type: ignore[type-var]


def check_method(method: str, model: str, preset: Preset) -> None:
    """Raise what ``build_editor`` would for a method and preset, before the model is loaded."""
    editor, suffix = split_method(method)
    found = read_hyperparameters(editor.name, model, preset)
    if isinstance(found, WrapperHyperparameters):
        check_method(f"{found.base}+{suffix}", model, base_preset(editor.name, model, preset))
    elif suffix == "app":
        app_values(editor.name, model, preset)
    if isinstance(found, MendHyperparameters):
        network_file(model, found)
