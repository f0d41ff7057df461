"""What several editors of one run need, found once: second moments, optimised vectors, updates."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from helpers.editing.editor import Editor
from helpers.editing.rect_prune import Wrapper
from helpers.editing.request import EditRequest
from helpers.editing.update import Update

Item = TypeVar("Item", bound=Hashable)
Value = TypeVar("Value")
Memo = dict[tuple[str, Hashable], Any]


def memoised(
    memo: Memo | None,
    how: str,
    items: Sequence[Item],
    make: Callable[[list[Item]], Iterable[Value]],
) -> list[Value]:
    """One value per item; ``make`` finds those that ``memo`` lacks. ``how`` is all else they depend on."""
    memo = {} if memo is None else memo
    missing = [item for item in dict.fromkeys(items) if (how, item) not in memo]
    for item, value in zip(missing, make(missing) if missing else (), strict=True):
        memo[how, item] = value
    return [memo[how, item] for item in items]


@dataclass
class Memoised(Editor):
    """Keeps an editor's updates of the unedited model in ``memo``, by its settings."""

    base: Editor
    memo: Memo = field(repr=False)
    name = "memoised"

    def __post_init__(self) -> None:
        self.language_model, self.app = self.base.language_model, self.base.app
        self.hyperparameters = self.base.hyperparameters

    def edit(self, requests: Sequence[EditRequest]) -> list[Update]:
        """The base editor's independent updates."""
        return list(self._once("edit", requests, self.base.edit))

    def edit_jointly(self, requests: Sequence[EditRequest]) -> Update:
        """The base editor's joint update."""
        return self._once("joint", requests, lambda all_of: [self.base.edit_jointly(all_of)])[0]

    def edit_sequentially(self, requests: Sequence[EditRequest]) -> Iterator[Update]:
        """The base editor's cumulative updates, kept off the device: they can be dense."""
        made = (update.to("cpu") for update in self.base.edit_sequentially(requests))
        yield from self._once("sequence", requests, lambda _: list(made))

    def edit_after(self, earlier: Update, requests: Sequence[EditRequest]) -> Update:
        """What the base editor adds to an edited model; not kept."""
        return self.base.edit_after(earlier, requests)

    def settings(self) -> dict[str, Any]:
        """The base editor's, so that results are kept under its key."""
        return self.base.settings()

    def _once(
        self,
        what: str,
        requests: Sequence[EditRequest],
        make: Callable[[Sequence[EditRequest]], list[Update]],
    ) -> list[Update]:
        how = what + json.dumps(self.settings(), sort_keys=True)
        return memoised(self.memo, how, [tuple(requests)], lambda _: [make(requests)])[0]


def with_memo(editor: Editor, memo: Memo) -> Editor:
    """The editor, or the base of RECT or PRUNE, with its updates in ``memo``: MEMIT edits once for all."""
    if isinstance(editor, Wrapper):
        return replace(editor, base=Memoised(editor.base, memo))
    return Memoised(editor, memo)
