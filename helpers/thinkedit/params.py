"""Parameters of notebook 06, ThinkEdit's case study, and what their values must be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import ClassVar

from helpers.editing.editors import method_label
from helpers.fetch import require_local
from helpers.params import check_one_of, check_range
from helpers.paths import in_repository
from helpers.records import by_case_id
from helpers.results.archive import Archive
from helpers.thinkedit.knowgic import EditedGraph, load_edited_graphs
from helpers.thinkedit.modes import MODES
from helpers.thinkedit.scores import ESTIMATORS
from helpers.values import NotebookParams, ValueChecks, at_least


class ThinkEditParams(NotebookParams):
    """Parameters of notebook 06."""

    value_checks: ClassVar[ValueChecks] = {
        **NotebookParams.value_checks,
        **at_least(1, "samples", "first", "max_new_tokens"),
        **at_least(0, "temperature"),
        **dict.fromkeys(("method", "methods"), method_label),
        "mode": partial(check_one_of, "mode", known=("sequential", "independent")),
        "modes": partial(check_one_of, "modes", known=MODES),
        "known_threshold": partial(check_range, "known_threshold", least=0, most=1),
        "estimators": partial(check_one_of, "estimators", known=ESTIMATORS),
    }

    @property
    def methods(self) -> list[str]:
        """The published methods, then that of the live part."""
        return [*self.values["methods"], self.values["method"]]

    def needed_lists(self) -> tuple[str, ...]:
        """What is published: methods in modes, scored by estimators."""
        return ("methods", "modes", "estimators")

    def joint_checks(self) -> Iterator[Callable[[], object]]:
        """The methods, the edits of both layouts, single edits and the published runs."""
        yield from super().joint_checks()
        yield partial(local_edits, self.values["layout"])
        yield partial(local_edits, self.values["benchmark"])
        yield partial(check_edit, self.values["layout"], self.values["case_id"])
        yield self._check_cases
        for name in self.values["published"]:
            yield partial(Archive(in_repository(self.values["stored"])).get, name)

    def _check_cases(self) -> None:
        for case_id in self.values["cases"]:
            check_edit("2025-06", case_id)


def local_edits(layout: str) -> tuple[EditedGraph, ...]:
    """The edits of a layout, or a ``NotHereError`` where its files would have to be downloaded."""
    require_local(layout)
    return load_edited_graphs(layout)


def check_edit(layout: str, case_id: int) -> None:
    """Refuse a number that no edit of the layout has."""
    by_case_id(local_edits(layout), case_id)
