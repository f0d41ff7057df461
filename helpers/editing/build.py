"""A name becomes a ready editor: hyperparameters, context templates and second moments put together.

>>> editor = build_editor("memit", language_model, preset="tuned", app=True)
>>> updates = editor.edit(requests)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from helpers.editing.app import App
from helpers.editing.context import context_templates
from helpers.editing.corpus import corpus_named
from helpers.editing.editor import Editor
from helpers.editing.hyperparameters import (
    HyperparameterError,
    Hyperparameters,
    RomeHyperparameters,
    VectorHyperparameters,
    preset_values,
    read_hyperparameters,
)
from helpers.editing.rome import Rome
from helpers.editing.second_moment import SecondMoment, second_moment
from helpers.models.language_model import LanguageModel


@dataclass(frozen=True)
class _Order:
    """What was asked of ``build_editor``."""

    language_model: LanguageModel
    preset: str
    app: App | None
    corpus: str
    seed: int
    targets: str
    overrides: Mapping[str, Any]
    progress: bool

    def read(self, section: str, kind: type[Hyperparameters], **fixed: Any) -> Any:
        """Hyperparameters of a section, with the overrides."""
        model = self.language_model.name
        overrides = {**fixed, **self.overrides}
        return read_hyperparameters(section, kind, model, self.preset, **overrides)


def _vector_editor(
    order: _Order, kind: type[Any], hyperparameters: VectorHyperparameters, *, grouped: bool
) -> Editor:
    """ROME and its relatives: the same parts, with the templates weighted in one group or two."""
    contexts = context_templates(
        order.language_model,
        hyperparameters.context_template_length_params,
        grouped=grouped,
        start=hyperparameters.context_template_start,
        seed=order.seed,
    )
    moments: dict[int, SecondMoment] = {}
    if getattr(hyperparameters, "mom2_adjustment", True):
        moments = second_moment(
            order.language_model,
            hyperparameters.layers,
            corpus_named(order.corpus, seed=order.seed),
            progress=order.progress,
        )
    return kind(
        order.language_model,
        hyperparameters,
        contexts,
        moments,
        order.app,
        targets=order.targets,
        progress=order.progress,
    )


@dataclass(frozen=True)
class _Recipe:
    """Section of the params file, how to assemble, and values the name itself fixes."""

    section: str
    build: Callable[..., Editor]
    fixed: Mapping[str, Any] = field(default_factory=dict)


def _rome(order: _Order, **fixed: Any) -> Editor:
    return _vector_editor(
        order, Rome, order.read("rome", RomeHyperparameters, **fixed), grouped=False
    )


_RECIPES: dict[str, _Recipe] = {
    "rome": _Recipe("rome", _rome),
    "r-rome": _Recipe("rome", _rome, {"rome_key": "averaged"}),
}
EDITOR_NAMES = tuple(_RECIPES)


def build_editor(
    name: str,
    language_model: LanguageModel,
    *,
    preset: str,
    app: App | bool | None = None,
    corpus: str = "self",
    seed: int = 0,
    targets: str = "new",
    overrides: Mapping[str, Any] | None = None,
    progress: bool = False,
) -> Editor:
    """Assemble an editor by name.

    Args:
        name: one of ``EDITOR_NAMES``.
        language_model: the model to edit; its name chooses ``params/models/<model>.yaml``.
        preset: ``paper``, ``original``, ``easyedit`` or ``tuned``, where the file has it.
        app: APP's coefficients; True takes those of the file.
        corpus: corpus of the second moments (see ``helpers.editing.corpus``).
        seed: of the context templates and the corpus.
        targets: ``"new"``, or ``"all"`` to make every correct answer a target too.
        overrides: single hyperparameters to replace.
        progress: show progress bars.

    Raises:
        HyperparameterError: an unknown editor, preset or key, or no coefficients for ``app=True``.
    """
    if name not in _RECIPES:
        raise HyperparameterError(f"no editor {name!r}; known: {', '.join(EDITOR_NAMES)}")
    recipe = _RECIPES[name]
    chosen, changed = _with_app(recipe.section, language_model.name, preset, app)
    order = _Order(
        language_model,
        preset,
        chosen,
        corpus,
        seed,
        targets,
        {**changed, **(overrides or {})},
        progress,
    )
    return recipe.build(order, **recipe.fixed)


def _with_app(
    section: str, model: str, preset: str, app: App | bool | None
) -> tuple[App | None, dict[str, Any]]:
    """APP's coefficients and the hyperparameters that change with APP (the stop rule)."""
    if app is None or app is False:
        return None, {}
    values = preset_values(section, model, preset).get("app")
    if values is None and app is True:
        raise HyperparameterError(
            f"{model}: {section}.{preset} has no coefficients for APP; pass app=App(alpha=…, beta=…,"
            " gamma=…), or leave APP out where the editor has no objective"
        )
    coefficients = {k: v for k, v in (values or {}).items() if k in ("alpha", "beta", "gamma")}
    changed = {k: v for k, v in (values or {}).items() if k not in coefficients}
    return (App(**coefficients) if app is True else app), changed
