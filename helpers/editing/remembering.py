"""Make an edit once, however many methods use it: MEMIT, and RECT and PRUNE upon MEMIT.

>>> editors = sharing({"memit": memit, "rect": rect, "prune": prune})

Methods with equal settings, and base editors equal to them, become one editor that keeps its updates
for as long as it lives. Nothing else changes: updates and settings are those of the editor itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from helpers.editing.app import App
from helpers.editing.editor import Editor
from helpers.editing.request import EditRequest
from helpers.editing.update import Update
from helpers.editing.wrapper import Wrapper
from helpers.models.language_model import LanguageModel

Requests = tuple[EditRequest, ...]


@dataclass
class Remembering(Editor):
    """An editor that keeps the updates its ``base`` made from the unedited model."""

    base: Editor
    language_model: LanguageModel = field(init=False, repr=False)
    app: App | None = field(init=False, repr=False)
    _apart: dict[Requests, list[Update]] = field(default_factory=dict, init=False, repr=False)
    _jointly: dict[Requests, Update] = field(default_factory=dict, init=False, repr=False)
    _sequences: dict[tuple[Requests, int], list[Update]] = field(
        default_factory=dict, init=False, repr=False
    )

    name = "remembering"

    def __post_init__(self) -> None:
        self.language_model = self.base.language_model
        self.hyperparameters = self.base.hyperparameters
        self.app = self.base.app

    def edit(self, requests: Sequence[EditRequest]) -> list[Update]:
        """The base editor's independent updates."""
        key = tuple(requests)
        if key not in self._apart:
            self._apart[key] = self.base.edit(requests)
        return list(self._apart[key])

    def edit_jointly(self, requests: Sequence[EditRequest]) -> Update:
        """The base editor's joint update."""
        key = tuple(requests)
        if key not in self._jointly:
            self._jointly[key] = self.base.edit_jointly(requests)
        return self._jointly[key]

    def edit_sequentially(
        self, requests: Sequence[EditRequest], *, batch: int = 1
    ) -> Iterator[Update]:
        """The base editor's cumulative updates; a sequence is remembered once it was made in full."""
        key = tuple(requests), batch
        if key in self._sequences:
            yield from self._sequences[key]
            return
        made = []
        for update in self.base.edit_sequentially(requests, batch=batch):
            made.append(
                update.to("cpu")
            )  # cumulative updates can be dense: too much for the device
            yield made[-1]
        self._sequences[key] = made

    def edit_upon(self, earlier: Update, requests: Sequence[EditRequest]) -> Update:
        """What the base editor adds to an edited model; not remembered."""
        return self.base.edit_upon(earlier, requests)

    def settings(self) -> dict[str, Any]:
        """The base editor's, so that results are kept under its key."""
        return self.base.settings()


def sharing(editors: Mapping[str, Editor]) -> dict[str, Editor]:
    """The same editors, with equal ones among them and their bases made one that remembers."""
    kept: dict[str, Remembering] = {}

    def remembered(editor: Editor) -> Remembering:
        key = json.dumps(editor.settings(), sort_keys=True)
        return kept.setdefault(key, Remembering(editor))

    return {
        name: replace(editor, base=remembered(editor.base))
        if isinstance(editor, Wrapper)
        else remembered(editor)
        for name, editor in editors.items()
    }
