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
from helpers.editing.catalogue import entry
from helpers.editing.context import context_templates
from helpers.editing.corpus import corpus_named
from helpers.editing.editor import Editor
from helpers.editing.ft import Ft
from helpers.editing.hyperparameters import HyperparameterError
from helpers.editing.kept_vectors import KeptVectors
from helpers.editing.kn import Kn
from helpers.editing.memit import Memit
from helpers.editing.mend import Mend, load_network
from helpers.editing.presets import preset_values, read_hyperparameters
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

    name: str
    language_model: LanguageModel
    preset: str
    app: App | bool | None
    corpus: str
    seed: int
    targets: str
    overrides: Mapping[str, Any]
    progress: bool
    shared: Shared

    def hyperparameters(self, **overrides: Any) -> Any:
        """The preset's, with ``overrides`` in place of its own values."""
        return read_hyperparameters(self.name, self.language_model.name, self.preset, **overrides)

    def read(self) -> tuple[Any, App | None]:
        """Hyperparameters, those that change with APP (its stop rule) among them, and APP itself."""
        if self.app is None or self.app is False:
            return self.hyperparameters(**self.overrides), None
        model = self.language_model.name
        values = preset_values(self.name, model, self.preset).get("app")
        if values is None and self.app is True:
            raise HyperparameterError(
                f"{model}: {entry(self.name).section}.{self.preset} has no coefficients for APP; pass"
                " app=App(alpha=…, beta=…, gamma=…), or leave APP out for an editor without a loss"
            )
        values = dict(values or {})
        values.pop("extrapolated", None)  # said in captions
        given = {k: values.pop(k) for k in _APP_KEYS if k in values}
        app = App(**given) if self.app is True else self.app
        fixed = entry(self.name).fixed  # what the name stands for, whatever goes with APP
        return self.hyperparameters(**{**values, **fixed, **self.overrides}), app


_APP_KEYS = ("alpha", "beta", "gamma", "margin")


def _vector_editor(order: _Order, kind: type[VectorEditor], *, grouped: bool) -> Editor:
    """ROME and its relatives; ``grouped`` weighs the bare prompt as much as all sampled contexts."""
    hyperparameters, app = order.read()
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
        app,
        targets=order.targets,
        progress=order.progress,
        vectors=order.shared.vectors,
    )


def _wrapper(order: _Order, kind: Callable[[Editor, Any], Editor]) -> Editor:
    """RECT and PRUNE; overrides they do not know go to the editor they change."""
    known = entry(order.name).kind.model_fields
    own = {k: v for k, v in order.overrides.items() if k in known}
    rest = {k: v for k, v in order.overrides.items() if k not in known}
    hyperparameters = order.hyperparameters(**own)
    return kind(_build(replace(order, name=hyperparameters.base, overrides=rest)), hyperparameters)


def _ft(order: _Order) -> Editor:
    hyperparameters, app = order.read()
    options: dict[str, Any] = {"targets": order.targets, "progress": order.progress}
    return Ft(order.language_model, hyperparameters, app, **options)


def _kn(order: _Order) -> Editor:
    hyperparameters, app = order.read()
    if order.targets != "new":
        raise HyperparameterError("KN optimises nothing, so it takes no further targets")
    contexts = context_templates(
        order.language_model,
        hyperparameters.context_template_length_params,
        grouped=False,
        seed=order.seed,
    )
    return Kn(order.language_model, hyperparameters, contexts, app, progress=order.progress)


def _mend(order: _Order) -> Editor:
    """MEND with the trained network its hyperparameters name."""
    hyperparameters, app = order.read()
    network = load_network(order.language_model, hyperparameters)
    options: dict[str, Any] = {"targets": order.targets, "progress": order.progress}
    return Mend(order.language_model, hyperparameters, network, app, **options)


_BUILDERS: dict[str, Callable[[_Order], Editor]] = {  # by section
    "rome": lambda order: _vector_editor(order, Rome, grouped=False),
    "memit": lambda order: _vector_editor(order, Memit, grouped=True),
    "alphaedit": lambda order: _vector_editor(order, AlphaEdit, grouped=True),
    "ft": _ft,
    "kn": _kn,
    "mend": _mend,
    "rect": lambda order: _wrapper(order, Rect),
    "prune": lambda order: _wrapper(order, Prune),
}


def _build(order: _Order) -> Editor:
    return _BUILDERS[entry(order.name).section](order)


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
        name: one of ``CATALOGUE``.
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
    parts = shared or Shared(vectors=None)  # an editor alone has nobody to keep vectors for
    changed = overrides or {}
    return _build(
        _Order(name, language_model, preset, app, corpus, seed, targets, changed, progress, parts)
    )
