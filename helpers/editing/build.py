"""A name becomes a ready editor: hyperparameters, context templates and second moments put together.

>>> editor = build_editor("memit", language_model, preset="tuned", app=True)
>>> updates = editor.edit(requests)
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from helpers.editing.app import App
from helpers.editing.contexts import ContextTemplates, context_templates
from helpers.editing.corpus import corpus_named
from helpers.editing.editor import Editor
from helpers.editing.editors import EditorError, split_method
from helpers.editing.memo import Memory
from helpers.editing.moments import SecondMoment, second_moment
from helpers.editing.params_files import Size, check_fits
from helpers.editing.presets import Preset, is_of_model, preset_values, read_hyperparameters
from helpers.models.language_model import LanguageModel


@dataclass(frozen=True)
class Setup:
    """The model to edit, and what its editors are built of (arguments of ``build_editor``)."""

    language_model: LanguageModel
    preset: Preset
    corpus: str = "self"
    seed: int = 0
    progress: bool = False
    memory: Memory | None = None

    @property
    def size(self) -> Size:
        """The model's depth and width."""
        return Size(self.language_model.layout.blocks, self.language_model.layout.hidden_size)

    def contexts(
        self, lengths: Sequence[tuple[int, int]], *, grouped: bool, start: str = "words"
    ) -> ContextTemplates:
        """Context templates; ``grouped`` weighs the bare prompt as much as all sampled ones."""
        return context_templates(
            self.language_model, lengths, grouped=grouped, start=start, seed=self.seed
        )

    def second_moments(self, layers: Sequence[int]) -> dict[int, SecondMoment]:
        """Second moments by layer; those that are missing in the cache are computed."""

        def make(missing: Sequence[int]) -> list[SecondMoment]:
            corpus = corpus_named(self.corpus, seed=self.seed)
            made = second_moment(self.language_model, missing, corpus)
            return [made[layer] for layer in missing]

        how = json.dumps([self.language_model.fingerprint, self.corpus, self.seed])
        memory = Memory() if self.memory is None else self.memory
        return dict(zip(layers, memory.get(how, layers, make), strict=True))


@dataclass(frozen=True)
class Order:
    """One editor to be built: ``overrides`` replace single hyperparameters of its preset."""

    name: str
    setup: Setup
    app: App | bool | None = None
    targets: str = "new"
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def hyperparameters(self, **overrides: Any) -> Any:
        """The preset's, with ``overrides`` in place of its own values."""
        setup = self.setup
        model, preset = setup.language_model.name, setup.preset
        if is_of_model(preset):
            check_fits(model, setup.size)
        return read_hyperparameters(self.name, model, preset, size=setup.size, **overrides)

    def read(self) -> tuple[Any, App | None]:
        """Hyperparameters, those that change with APP (its stop rule) among them, and APP itself."""
        if self.app is None or self.app is False:
            return self.hyperparameters(**self.overrides), None
        model, (known, _) = self.setup.language_model.name, split_method(self.name + "+app")
        values = preset_values(self.name, model, self.setup.preset, self.setup.size).get("app")
        if values is None and self.app is True:
            raise EditorError(
                f"{model}: {known.section} has no coefficients for APP in this preset; write them"
                " under app (alpha, beta, gamma), pass app=App(alpha=…, beta=…, gamma=…), or leave"
                " APP out"
            )
        names = {field.name for field in fields(App)}
        coefficients = {k: v for k, v in (values or {}).items() if k in names}
        app = App(**coefficients) if self.app is True else self.app
        others = {k: v for k, v in (values or {}).items() if k not in {*names, "extrapolated"}}
        # What the name stands for holds whatever goes with APP.
        return self.hyperparameters(**{**others, **known.values, **self.overrides}), app

    def build(self) -> Editor:
        """The editor, put together by its class."""
        editor: Editor = split_method(self.name)[0].kind.build(self)
        return editor


def build_editor(
    name: str,
    language_model: LanguageModel,
    *,
    preset: Preset,
    app: App | bool | None = None,
    corpus: str = "self",
    seed: int = 0,
    targets: str = "new",
    overrides: Mapping[str, Any] | None = None,
    progress: bool = False,
    memory: Memory | None = None,
) -> Editor:
    """Assemble an editor by name.

    Args:
        name: one of ``EDITORS``.
        language_model: the model to edit; its name chooses ``params/models/<model>.yaml``.
        preset: ``paper``, ``original``, ``easyedit`` or ``tuned``, where the file has it; ``generic``
            for any model; a YAML file, a dictionary or an object with the hyperparameters.
        app: APP's coefficients; True takes those of the file.
        corpus: corpus of the second moments (see ``helpers.editing.corpus``).
        seed: of the context templates and the corpus.
        targets: which answers are made likely, of ``helpers.editing.rows.TARGETS``.
        overrides: single hyperparameters to replace.
        memory: shared by editors that are to find second moments and vectors once.

    Raises:
        EditorError: an unknown editor, preset or key, or no coefficients for ``app=True``.
        NetworkError: no trained network of this model for MEND.
        CorpusError: an unknown corpus, where second moments have to be made.
    """
    setup = Setup(language_model, preset, corpus, seed, progress, memory)
    return Order(name, setup, app, targets, overrides or {}).build()
