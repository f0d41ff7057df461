"""Methods by name become editors: an editor, alone, with APP, or with all answers as targets."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from helpers.editing.app import App
from helpers.editing.build import build_editor
from helpers.editing.editor import Editor
from helpers.editing.editors import EditorError, Variant, method_label
from helpers.editing.memo import Memory
from helpers.editing.mend import MendHyperparameters, UntrainedError, network_file
from helpers.editing.presets import Preset, base_hyperparameters, check_preset
from helpers.editing.rows import TARGETS
from helpers.editing.wrapper import Wrapper
from helpers.models.language_model import LanguageModel


def check_method(method: str, model: str, preset: Preset) -> None:
    """Refuse a method that cannot be built for a model, before the model is loaded.

    Raises:
        EditorError: see ``check_preset``.
        UntrainedError: MEND has no trained network of this model.
    """
    check_preset(method, model, preset)
    chosen = base_hyperparameters(method.partition("+")[0], model, preset)
    if isinstance(chosen, MendHyperparameters):
        network_file(model, chosen)


def build_method(
    method: str,
    language_model: LanguageModel,
    *,
    preset: str,
    app: App | None = None,
    overrides: Mapping[str, Any] | None = None,
    **options: Any,
) -> Editor:
    """Build a method's editor; ``options`` as in ``build_editor`` (corpus, seed, progress).

    ``app`` replaces the params file's coefficients for ``+app`` methods.
    """
    method_label(method)
    name, _, suffix = method.partition("+")
    return build_editor(
        name,
        language_model,
        preset=preset,
        app=(app or True) if suffix == "app" else None,
        targets=suffix if suffix in TARGETS else "new",
        overrides=overrides,
        **options,
    )


def build_methods(
    methods: Sequence[str], language_model: LanguageModel, **options: Any
) -> dict[str, Editor]:
    """Editors by label, in the order given; what several need is made once.

    MEND is left out with a warning where no network was trained for the model, unless it is alone.

    Raises:
        EditorError: an unknown method, or one text in place of a list.
        UntrainedError: no method is left.
    """
    if isinstance(methods, str):
        raise EditorError(
            f"methods is one text, {methods!r}, where a list is needed: [{methods!r}]"
        )
    options = {"memory": Memory(), **options}
    editors: dict[str, Editor] = {}
    for method in methods:
        try:
            editors[method_label(method)] = build_method(method, language_model, **options)
        except UntrainedError as error:
            if not editors and method == methods[-1]:
                raise
            warnings.warn(f"{method_label(method)} is left out: {error}", stacklevel=2)
    return editors


def build_variants(
    variants: Iterable[Variant], language_model: LanguageModel, **options: Any
) -> dict[str, Editor]:
    """Editors by variant name; each method's parts (contexts, statistics) are made once."""
    chosen = list(variants)
    methods = dict.fromkeys(variant.method for variant in chosen)
    options = {"memory": Memory(), **options}
    built = {m: build_method(m, language_model, **options) for m in methods}
    return {str(variant): _changed(built[variant.method], variant) for variant in chosen}


def _changed(editor: Editor, variant: Variant) -> Editor:
    """The editor with the variant's change in its APP."""
    if not variant.field or editor.app is None:
        return editor
    if isinstance(editor, Wrapper):  # its APP is that of the editor it stands on
        return replace(editor, base=_changed(editor.base, variant))
    value: float = variant.value
    if variant.times:
        value *= getattr(editor.app, variant.field)
    change: Any = {variant.field: int(value) if variant.field == "neighbours" else value}
    return replace(editor, app=replace(editor.app, **change))  # type: ignore[type-var]
