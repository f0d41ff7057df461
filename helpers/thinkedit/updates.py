"""The updates of KnowGIC's edits in each mode, and what an editor says about them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pandas as pd

from helpers.editing.editor import Editor
from helpers.editing.request import EditRequest
from helpers.editing.update import Update
from helpers.thinkedit.edits import Edit


class Updates(NamedTuple):
    """One update for each edit; ``diagnostics`` has a row for each, with its share of CPU seconds."""

    updates: list[Update]
    diagnostics: pd.DataFrame


def independent_updates(
    editor: Editor, edits: Sequence[Edit], requests: Sequence[EditRequest]
) -> Updates:
    """Every edit from the unedited model."""
    return _timed(edits, lambda: editor.edit(requests))


def sequential_updates(
    editor: Editor, edits: Sequence[Edit], requests: Sequence[EditRequest]
) -> Updates:
    """Each edit after those before it; an update holds all of them up to its own.

    They are kept on the CPU: each is a whole edited model's worth of change (RECT's is dense).
    """
    return _timed(edits, lambda: [u.to("cpu") for u in editor.edit_sequentially(requests)])


def deep_updates(
    editor: Editor, edits: Sequence[Edit], requests: Sequence[Sequence[EditRequest]]
) -> Updates:
    """All requests of an edit together; an edit that loses one of them counts as failed."""
    return _timed(edits, lambda: [_whole(editor.edit_jointly(each)) for each in requests])


def _whole(update: Update) -> Update:
    """The update, or none where a request failed: without it, it would be another edit."""
    parts = update.diagnostics["edits"]
    lost = [part["failure"] for part in parts if "failure" in part]
    if not lost:
        return update
    reason = f"{len(lost)} of {len(parts)} requests failed, the first with: {lost[0]}"
    return Update({}, {**update.diagnostics, "failure": reason})


def _timed(edits: Sequence[Edit], make: Callable[[], Sequence[Update]]) -> Updates:
    started = time.process_time()
    updates = list(make())
    seconds = time.process_time() - started
    rows = [
        {
            "case_id": edit.case_id,
            "failure": update.diagnostics.get("failure", ""),
            "norm": update.norm(),
            "seconds": seconds / len(edits),
            "diagnostics": json.dumps(dict(update.diagnostics), default=float),
        }
        for edit, update in zip(edits, updates, strict=True)
    ]
    return Updates(updates, pd.DataFrame(rows))
