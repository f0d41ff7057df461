"""Published scores count as finished: what another machine computed is not computed again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from helpers.editing.editor import Editor
from helpers.reporting.stored import StoredRun
from helpers.runs.peak_scores import PeakRun


def adopt(run: PeakRun, editors: Mapping[str, Editor], published: StoredRun) -> None:
    """Put published scores into a run's store where model, data, scoring and editor are the same.

    Args:
        run: the run whose store is filled.
        editors: by the label their scores were published under.
        published: the stored run; methods it does not have are left alone.
    """
    for label, editor in editors.items():
        if is_published(run, editor, label, published):
            run.adopt(editor, published.scores[label])


def is_published(run: PeakRun, editor: Editor, label: str, published: StoredRun) -> bool:
    """Whether a label's scores are of this model, data and scoring, and of this editor's settings."""
    same = published.settings.get(label) == as_json(editor.settings())
    return same and published.source == run.settings({})


def as_json(settings: Mapping[str, Any]) -> Any:
    """Settings as JSON gives them back, where tuples are lists."""
    return json.loads(json.dumps(settings))
