"""A name becomes a ready editor: hyperparameters, context templates and second moments put together.

>>> editor = build_editor("memit", language_model, preset="tuned", app=True)
>>> updates = editor.edit(requests)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from helpers.editing.alphaedit import AlphaEdit
from helpers.editing.app import App
from helpers.editing.context import context_templates
from helpers.editing.corpus import corpus_named
from helpers.editing.editor import Editor
from helpers.editing.ft import Ft, FtHyperparameters
from helpers.editing.hyperparameters import (
    AlphaEditHyperparameters,
    HyperparameterError,
    Hyperparameters,
    MemitHyperparameters,
    PruneHyperparameters,
    RectHyperparameters,
    RomeHyperparameters,
    VectorHyperparameters,
    preset_values,
    read_hyperparameters,
)
from helpers.editing.kept_vectors import KeptVectors
from helpers.editing.kn import Kn, KnHyperparameters
from helpers.editing.memit import Memit
from helpers.editing.mend import Mend, MendHyperparameters, load_network
from helpers.editing.prune import Prune
from helpers.editing.rect import Rect
from helpers.editing.rome import Rome
from helpers.editing.second_moment import SecondMoment, second_moment
from helpers.editing.vector_editor import VectorEditor
from helpers.models.language_model import LanguageModel


@dataclass(frozen=True)
class Shared:
    """What editors of one model, corpus and seed need only once; it fills as they are built and used.

    Attributes:
        moments: second moments by layer.
        vectors: optimised vectors of the unedited model.
    """

    moments: dict[int, SecondMoment] = field(default_factory=dict)
    vectors: KeptVectors | None = field(default_factory=KeptVectors)


@dataclass(frozen=True)
class _Order:
    """What was asked of ``build_editor``."""

    language_model: LanguageModel
    preset: str
    app: App | bool | None
    corpus: str
    seed: int
    targets: str
    overrides: Mapping[str, Any]
    progress: bool
    shared: Shared

    def read(self, section: str, kind: type[Hyperparameters], **fixed: Any) -> Any:
        """Hyperparameters of a section; the name's own values and the overrides come last."""
        changed = self.with_app(section)[1]
        overrides = {**changed, **fixed, **self.overrides}
        return read_hyperparameters(
            section, kind, self.language_model.name, self.preset, **overrides
        )

    def with_app(self, section: str) -> tuple[App | None, dict[str, Any]]:
        """APP's coefficients and margin, and the hyperparameters that change with APP (stop rule)."""
        if self.app is None or self.app is False:
            return None, {}
        model = self.language_model.name
        values = preset_values(section, model, self.preset).get("app")
        if values is None and self.app is True:
            raise HyperparameterError(
                f"{model}: {section}.{self.preset} has no coefficients for APP; pass"
                " app=App(alpha=…, beta=…, gamma=…), or leave APP out for an editor without a loss"
            )
        values = dict(values or {})
        values.pop("extrapolated", None)  # said in captions
        given = {k: values.pop(k) for k in _APP_KEYS if k in values}
        return (App(**given) if self.app is True else self.app), values


_APP_KEYS = ("alpha", "beta", "gamma", "margin")
_Build = Callable[[_Order], Editor]


def _vector_editor(
    order: _Order,
    section: str,
    kind: type[VectorEditor],
    values: type[VectorHyperparameters],
    *,
    grouped: bool,
    **fixed: Any,
) -> Editor:
    """ROME and its relatives; ``grouped`` weighs the bare prompt as much as all sampled contexts."""
    hyperparameters = order.read(section, values, **fixed)
    contexts = context_templates(
        order.language_model,
        hyperparameters.context_template_length_params,
        grouped=grouped,
        start=hyperparameters.context_template_start,
        seed=order.seed,
    )
    layers = hyperparameters.moment_layers
    moments = order.shared.moments
    missing = [layer for layer in layers if layer not in moments]
    if missing:
        corpus = corpus_named(order.corpus, seed=order.seed)
        found = second_moment(order.language_model, missing, corpus, progress=order.progress)
        moments.update(found)
    return kind(
        order.language_model,
        hyperparameters,
        contexts,
        {layer: moments[layer] for layer in layers},
        order.with_app(section)[0],
        targets=order.targets,
        progress=order.progress,
        vectors=order.shared.vectors,
    )


def _wrapper(
    order: _Order,
    section: str,
    kind: Callable[[Editor, Any], Editor],
    values: type[Hyperparameters],
) -> Editor:
    """RECT and PRUNE; overrides they do not know go to the editor they change."""
    own = {k: v for k, v in order.overrides.items() if k in values.model_fields}
    rest = {k: v for k, v in order.overrides.items() if k not in own}
    model = order.language_model.name
    hyperparameters = read_hyperparameters(section, values, model, order.preset, **own)
    base = _EDITORS[hyperparameters.base](replace(order, overrides=rest))
    return kind(base, hyperparameters)


def _ft(order: _Order, objective: str) -> Editor:
    """FT-L and FT-M: one section, the objective fixed by the name."""
    return Ft(
        order.language_model,
        order.read("ft", FtHyperparameters, objective=objective),
        order.with_app("ft")[0],
        targets=order.targets,
        progress=order.progress,
    )


def _kn(order: _Order) -> Editor:
    hyperparameters = order.read("kn", KnHyperparameters)
    if order.targets != "new":
        raise HyperparameterError("KN optimises nothing, so it takes no further targets")
    contexts = context_templates(
        order.language_model,
        hyperparameters.context_template_length_params,
        grouped=False,
        seed=order.seed,
    )
    app = order.with_app("kn")[0]
    return Kn(order.language_model, hyperparameters, contexts, app, progress=order.progress)


def _mend(order: _Order) -> Editor:
    """MEND with the trained network its hyperparameters name."""
    hyperparameters = order.read("mend", MendHyperparameters)
    return Mend(
        order.language_model,
        hyperparameters,
        load_network(order.language_model, hyperparameters),
        order.with_app("mend")[0],
        targets=order.targets,
        progress=order.progress,
    )


def _rome(order: _Order, **fixed: Any) -> Editor:
    return _vector_editor(order, "rome", Rome, RomeHyperparameters, grouped=False, **fixed)


def _memit(order: _Order) -> Editor:
    return _vector_editor(order, "memit", Memit, MemitHyperparameters, grouped=True)


def _alphaedit(order: _Order) -> Editor:
    return _vector_editor(order, "alphaedit", AlphaEdit, AlphaEditHyperparameters, grouped=True)


_EDITORS: dict[str, _Build] = {
    "rome": _rome,
    "r-rome": lambda order: _rome(order, rome_key="averaged"),
    "memit": _memit,
    "alphaedit": _alphaedit,
    "ft-l": lambda order: _ft(order, "prompt_last"),
    "ft-m": lambda order: _ft(order, "target_new"),
    "kn": _kn,
    "mend": _mend,
    "rect": lambda order: _wrapper(order, "rect", Rect, RectHyperparameters),
    "prune": lambda order: _wrapper(order, "prune", Prune, PruneHyperparameters),
}
EDITOR_NAMES = tuple(_EDITORS)


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
    shared: Shared | None = None,
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
        shared: what editors of one model, corpus and seed have in common; what is missing is loaded,
            or computed, and added.

    Raises:
        HyperparameterError: an unknown editor, preset or key, or no coefficients for ``app=True``.
        NetworkError: no trained network of this model for MEND.
        CorpusError: an unknown corpus, where second moments have to be made.
    """
    if name not in _EDITORS:
        raise HyperparameterError(f"no editor {name!r}; known: {', '.join(EDITOR_NAMES)}")
    parts = shared or Shared(vectors=None)  # an editor alone has nobody to keep vectors for
    return _EDITORS[name](
        _Order(language_model, preset, app, corpus, seed, targets, overrides or {}, progress, parts)
    )
