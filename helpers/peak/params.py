"""Parameters of notebooks that edit facts of PEAK records, and what their values must be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

from helpers.editing.editors import method_label
from helpers.fetch import require_local
from helpers.peak.metrics import AnswerFilter
from helpers.peak.records import PeakRecord, load_peak
from helpers.peak.tables import published_runs
from helpers.records import by_case_id
from helpers.values import NotebookParams, ValueChecks, at_least


class PeakParams(NotebookParams):
    """Parameters of any notebook that reads a PEAK data set, which must be readable."""

    def records(self) -> tuple[PeakRecord, ...]:
        """The records that a run reads."""
        require_local(self.values["dataset"])
        return load_peak(
            self.values["dataset"],
            strict_lists=self.values.get("strict_lists", True),
            limit=self.values.get("records"),
            keep=self.values.get("keep"),
            seed=self.values["seed"],
        ).records

    def joint_checks(self) -> Iterator[Callable[[], object]]:
        """Methods, then the data set."""
        yield from super().joint_checks()
        yield self.records

    def check_case(self) -> None:
        """Refuse a number that no record has."""
        by_case_id(self.records(), self.values["case_id"])


class PreliminariesParams(PeakParams):
    """Parameters of notebook 01, which edits one record by ROME, with and without APP."""

    @property
    def methods(self) -> list[str]:
        """ROME with APP: what it needs, ROME alone needs as well."""
        return ["rome+app"]

    def joint_checks(self) -> Iterator[Callable[[], object]]:
        """The checks of all PEAK notebooks, then of the record."""
        yield from super().joint_checks()
        yield self.check_case


class EditingRunsParams(PeakParams):
    """Parameters of notebook 03, PEAK's main tables."""

    value_checks: ClassVar[ValueChecks] = {
        **NotebookParams.value_checks,
        **at_least(1, "records"),
        **at_least(0, "keep"),
        **dict.fromkeys(("methods", "placebo"), method_label),
    }

    @property
    def methods(self) -> list[str]:
        """The methods of the tables, then those of the placebo."""
        return [*self.values["methods"], *self.values["placebo"]]

    def needed_lists(self) -> tuple[str, ...]:
        """The methods of the tables."""
        return ("methods",)

    def joint_checks(self) -> Iterator[Callable[[], object]]:
        """The checks of all PEAK notebooks, then of the filter of answers and the published runs."""
        yield from super().joint_checks()
        yield self._check_filter
        if self.values["published"]:
            yield self._check_published

    def _check_filter(self) -> None:
        AnswerFilter(
            rule=self.values["rule"],
            hard_share=self.values["hard_share"],
            threshold=self.values["threshold"],
        )

    def _check_published(self) -> None:
        published_runs(self.values["published"])
