"""Editors that change another editor's updates: the common part of RECT and PRUNE."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

from helpers.editing.app import App
from helpers.editing.build import Order
from helpers.editing.editor import Editor
from helpers.editing.editors import split_method
from helpers.editing.hyperparameters import WrapperHyperparameters
from helpers.editing.presets import base_preset
from helpers.models.language_model import LanguageModel


@dataclass
class Wrapper(Editor):
    """An editor that changes the updates of ``base``, whose model, APP and targets it shares."""

    base: Editor
    hyperparameters: WrapperHyperparameters
    language_model: LanguageModel = field(init=False, repr=False)
    app: App | None = field(init=False, repr=False)

    @classmethod
    def build(cls, order: Order) -> Self:
        """With its base editor, which gets the overrides that it does not know itself."""
        known = split_method(order.name)[0].hyperparameters.model_fields
        own = {k: v for k, v in order.overrides.items() if k in known}
        others = {k: v for k, v in order.overrides.items() if k not in known}
        hyperparameters = order.hyperparameters(**own)
        setup = order.setup
        preset = base_preset(order.name, setup.language_model.name, setup.preset)
        base = replace(
            order,
            name=hyperparameters.base,
            setup=replace(setup, preset=preset),
            overrides=others,
        ).build()
        return cls(base, hyperparameters)

    def __post_init__(self) -> None:
        self.language_model = self.base.language_model
        self.app = self.base.app
        self.targets = self.base.targets

    def settings(self) -> dict[str, Any]:
        """Also the base editor's settings."""
        return super().settings() | {"base": self.base.settings()}
