"""Make an edit once, however many methods use it: MEMIT, and RECT and PRUNE on top of MEMIT.

>>> editors = sharing({"memit": memit, "rect": rect, "prune": prune})

Methods with equal settings, and base editors equal to them, become one editor that remembers its
updates for as long as it lives. Updates and settings are those of the editor itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from helpers.editing.app import App
from helpers.editing.editor import Editor
from helpers.editing.memo import Memory
from helpers.editing.request import EditRequest
from helpers.editing.update import Update
from helpers.editing.wrapper import Wrapper
from helpers.models.language_model import LanguageModel


@dataclass
class Remembering(Editor):
    """An editor that remembers the updates its ``base`` made from the unedited model."""

    base: Editor
    language_model: LanguageModel = field(init=False, repr=False)
    app: App | None = field(init=False, repr=False)
    _memory: Memory = field(default_factory=Memory, init=False, repr=False)

    name = "remembering"

    def __post_init__(self) -> None:
        self.language_model = self.base.language_model
        self.hyperparameters = self.base.hyperparameters
        self.app = self.base.app

    def edit(self, requests: Sequence[EditRequest]) -> list[Update]:
        """The base editor's independent updates."""
        (updates,) = self._memory.get(
            "edit", [tuple(requests)], lambda _: [self.base.edit(requests)]
        )
        return list(updates)

    def edit_jointly(self, requests: Sequence[EditRequest]) -> Update:
        """The base editor's joint update."""
        (update,) = self._memory.get(
            "edit_jointly", [tuple(requests)], lambda _: [self.base.edit_jointly(requests)]
        )
        return update

    def edit_sequentially(
        self, requests: Sequence[EditRequest], *, batch: int = 1
    ) -> Iterator[Update]:
        """The base editor's cumulative updates, kept off the device: they can be dense."""

        def make(_: Sequence[Any]) -> list[list[Update]]:
            updates = self.base.edit_sequentially(requests, batch=batch)
            return [[update.to("cpu") for update in updates]]

        (updates,) = self._memory.get("edit_sequentially", [(tuple(requests), batch)], make)
        yield from updates

    def edit_after(self, earlier: Update, requests: Sequence[EditRequest]) -> Update:
        """What the base editor adds to an edited model; not remembered."""
        return self.base.edit_after(earlier, requests)

    def settings(self) -> dict[str, Any]:
        """The base editor's, so that results are kept under its key."""
        return self.base.settings()


def sharing(editors: Mapping[str, Editor]) -> dict[str, Editor]:
    """The same editors, with equal ones among them and their bases made one that remembers."""
    memory = Memory()

    def remembered(editor: Editor) -> Editor:
        key = json.dumps(editor.settings(), sort_keys=True)
        return memory.get("editor", [key], lambda _: [Remembering(editor)])[0]

    return {
        name: replace(editor, base=remembered(editor.base))
        if isinstance(editor, Wrapper)
        else remembered(editor)
        for name, editor in editors.items()
    }
