"""Editors that change another editor's updates: the common part of RECT and PRUNE."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from helpers.editing.app import App
from helpers.editing.editor import Editor
from helpers.models.language_model import LanguageModel


@dataclass
class Wrapper(Editor):
    """An editor upon a ``base`` editor, whose model, APP and targets it shares."""

    base: Editor
    language_model: LanguageModel = field(init=False, repr=False)
    app: App | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.language_model = self.base.language_model
        self.app = self.base.app
        self.targets = self.base.targets

    def settings(self) -> dict[str, Any]:
        """Also the base editor's settings."""
        return super().settings() | {"base": self.base.settings()}
