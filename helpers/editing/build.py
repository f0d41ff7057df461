"""A method's name becomes a ready editor: hyperparameters, context templates and statistics put together."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from helpers.editing.app import SYMBOLS, App
from helpers.editing.contexts import ContextTemplates, context_templates
from helpers.editing.corpus import corpus_named
from helpers.editing.editor import Editor, Memo, Wrapper, memoised
from helpers.editing.editors import (
    DOSES,
    EditorError,
    NamedEditor,
    Variant,
    method_label,
    split_method,
)
from helpers.editing.icd import Icd
from helpers.editing.mend import MendHyperparameters, UntrainedError, load_network, network_file
from helpers.editing.moments import SecondMoment, second_moments
from helpers.editing.presets import (
    ModelSize,
    Preset,
    WrapperHyperparameters,
    app_values,
    base_preset,
    icd_of_preset,
    read_hyperparameters,
)
from helpers.models import LanguageModel
from helpers.models.state import in_own_state


@in_own_state
def build_editor(  # noqa: PLR0913 - what a user chooses, each by its name
    method: str,
    lm: LanguageModel,
    *,
    preset: Preset,
    app: App | bool | None = None,
    icd: Icd | None = None,
    corpus: str = "self",
    seed: int = 0,
    overrides: Mapping[str, Any] | None = None,
    progress: bool = False,
    memo: Memo | None = None,
) -> Editor:
    """Make an editor for a model, by its name and with the hyperparameters of a preset.

    Context templates and second moments that it needs are read from the package or the cache, and made where
    both lack them, which can take minutes.

    Args:
        method: one of ``EDITORS``, as it is or with ``+app``, ``+icd``, ``+all`` or ``+all-sum``.
        preset: ``paper``, ``original``, ``easyedit`` or ``tuned``, where the model's file has it;
            ``generic`` for any model; a YAML file or a dictionary with the hyperparameters.
        app: APP's coefficients; True, or ``+app`` alone, takes those of the preset.
        icd: coefficients of ``+icd``; None takes those of the preset, or else the usual ones.
        corpus: of the second moments (``helpers.editing.corpus``).
        seed: of the context templates and the corpus.
        overrides: hyperparameters that replace the preset's, by name.
        progress: show a bar while edits are made.
        memo: shared by editors that are to find second moments and vectors once.

    Raises:
        EditorError: an unknown editor, preset or key, no coefficients for ``app=True``, or two objectives.
        NetworkError: no trained network of this model for MEND.
    """
    named_editor, suffix = split_method(method)
    if app and not named_editor.loss:
        raise EditorError(f"{named_editor.label} optimises no loss that APP could join; omit APP")
    with_app = bool(app) or suffix == "app"
    if (icd is not None and suffix != "icd") or (app and suffix == "icd"):
        raise EditorError(
            f"{method}: an editor has one objective; icd is that of {named_editor.name}+icd"
        )
    given_app = app if isinstance(app, App) else None
    options = _Options(corpus, seed, progress, memo)
    if issubclass(named_editor.hyperparameters, WrapperHyperparameters):
        given_objective = icd if suffix == "icd" else given_app or with_app
        return _wrapper(
            named_editor, lm, preset, suffix, given_objective, dict(overrides or {}), options
        )
    values = dict(overrides or {})
    size = _preset_size(lm)
    coefficients: App | None = None
    if with_app:
        values_with_app = app_values(
            named_editor.name, lm.name, preset, size, needed=given_app is None
        )
        preset_coefficients = {
            key: values_with_app.pop(key) for key in SYMBOLS if key in values_with_app
        }
        values_with_app.pop("extrapolated", None)
        coefficients = given_app or App(**preset_coefficients)
        # What the name implies holds whatever goes with APP.
        values = {**values_with_app, **named_editor.values, **values}
    hyperparameters = read_hyperparameters(
        named_editor.name, lm.name, preset, model_size=size, **values
    )
    if suffix == "icd" and icd is None:
        icd = icd_of_preset(named_editor.name, lm.name, preset, size)
    targets = suffix if suffix.startswith("all") else "new"
    parts = _EditorParts(
        named_editor.editor_class, lm, hyperparameters, coefficients, icd, targets, options
    )
    return parts.assemble()


@dataclass(frozen=True)
class _Options:
    """The options of ``build_editor`` that every editor takes alike."""

    corpus: str
    seed: int
    progress: bool
    memo: Memo | None


def _preset_size(lm: LanguageModel) -> ModelSize:
    return lm.layout.blocks, lm.layout.hidden_size


def _wrapper(
    named_editor: NamedEditor,
    lm: LanguageModel,
    preset: Preset,
    suffix: str,
    objective: App | Icd | bool | None,
    overrides: dict[str, Any],
    options: _Options,
) -> Editor:
    """RECT or PRUNE with its base editor, which gets the overrides that the wrapper does not know."""
    wrapper_overrides = {
        key: overrides.pop(key)
        for key in named_editor.hyperparameters.model_fields
        if key in overrides
    }
    hyperparameters = read_hyperparameters(
        named_editor.name, lm.name, preset, model_size=_preset_size(lm), **wrapper_overrides
    )
    base = build_editor(
        f"{hyperparameters.base}+{suffix}",
        lm,
        preset=base_preset(named_editor.name, lm.name, preset),
        app=None if isinstance(objective, Icd) else objective or None,
        icd=objective if isinstance(objective, Icd) else None,
        corpus=options.corpus,
        seed=options.seed,
        overrides=overrides,
        progress=options.progress,
        memo=options.memo,
    )
    wrapper: Editor = named_editor.editor_class(base, hyperparameters)
    return wrapper


@dataclass(frozen=True)
class _EditorParts:
    """What an editor can be made of: each of its fields gets the part of that name, made when asked for."""

    editor_class: type[Editor]
    lm: LanguageModel
    hyperparameters: Any
    app: App | None
    icd: Icd | None
    targets: str
    options: _Options

    def assemble(self) -> Editor:
        """The editor, with the parts that its fields name."""
        parts_by_name: dict[str, Callable[[], Any]] = {
            "lm": lambda: self.lm,
            "hyperparameters": lambda: self.hyperparameters,
            "app": lambda: self.app,
            "icd": lambda: self.icd,
            "targets": lambda: self.targets,
            "corpus": lambda: self.options.corpus,
            "seed": lambda: self.options.seed,
            "progress": lambda: self.options.progress,
            "memo": lambda: self.options.memo,
            "contexts": self._contexts,
            "second_moments": self._second_moments,
            "network": lambda: load_network(self.lm, self.hyperparameters),
        }
        names = [field.name for field in fields(self.editor_class)]  # type: ignore[arg-type]
        return self.editor_class(
            **{name: parts_by_name[name]() for name in names if name in parts_by_name}
        )

    def _contexts(self) -> ContextTemplates:
        return context_templates(
            self.lm,
            self.hyperparameters.context_template_length_params,
            grouped=self.editor_class.grouped,
            start=getattr(self.hyperparameters, "context_template_start", "words"),
            seed=self.options.seed,
        )

    def _second_moments(self) -> dict[int, SecondMoment]:
        lm = self.lm
        corpus, seed = self.options.corpus, self.options.seed
        layers = self.hyperparameters.moment_layers

        def make(missing: Sequence[int]) -> Iterable[SecondMoment]:
            return second_moments(lm, missing, corpus_named(corpus, seed=seed)).values()

        memo_key = json.dumps([lm.fingerprint, corpus, seed])
        moments = memoised(self.options.memo, memo_key, layers, make)
        return dict(zip(layers, moments, strict=True))


def build_editors(
    methods: Iterable[str | Variant], lm: LanguageModel, **options: Any
) -> dict[str, Editor]:
    """Editors by names of methods or variants; MEND, unless alone, is omitted where it is untrained."""
    variants = [Variant.parse(str(method)) for method in methods]
    options = {"memo": Memo(), **options}
    built: dict[str, Editor] = {}
    for method in (names := dict.fromkeys(variant.method for variant in variants)):
        try:
            built[method] = build_editor(method, lm, **options)
        except UntrainedError as error:
            if not built and method == list(names)[-1]:
                raise
            warnings.warn(f"{method_label(method)} is omitted: {error}", stacklevel=2)
    return {str(v): _with_variant(built[v.method], v) for v in variants if v.method in built}


def _with_variant(editor: Editor, variant: Variant) -> Editor:
    if not variant.field:
        return editor
    if isinstance(editor, Wrapper):  # what it has is that of the editor it changes
        return replace(editor, base=_with_variant(editor.base, variant))
    _, suffix = split_method(variant.method)
    part = "hyperparameters" if variant.field in DOSES else suffix
    current_values = getattr(editor, part)
    return replace(editor, **{part: type(current_values)(**variant.changed(vars(current_values)))})  # type: ignore[type-var]


def check_method(method: str, model: str, preset: Preset) -> None:
    """Raise what ``build_editor`` would for a method and preset, before the model is loaded."""
    named_editor, suffix = split_method(method)
    hyperparameters = read_hyperparameters(named_editor.name, model, preset)
    if isinstance(hyperparameters, WrapperHyperparameters):
        base_method = f"{hyperparameters.base}+{suffix}"
        check_method(base_method, model, base_preset(named_editor.name, model, preset))
    elif suffix == "app":
        app_values(named_editor.name, model, preset)
    elif suffix == "icd":
        icd_of_preset(named_editor.name, model, preset)
    if isinstance(hyperparameters, MendHyperparameters):
        network_file(model, hyperparameters)
