"""Parameters of notebook 02, which makes PEAK records of triples, and what their values must be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import ClassVar

from helpers.peak.construction.publish import settings_of
from helpers.peak.metrics import AnswerFilter
from helpers.triples.sources import check_source
from helpers.values import NotebookParams, ValueChecks, at_least


class ConstructionParams(NotebookParams):
    """Parameters of notebook 02, which makes no edit."""

    value_checks: ClassVar[ValueChecks] = {
        **NotebookParams.value_checks,
        **at_least(1, "most_rows"),
    }

    def joint_checks(self) -> Iterator[Callable[[], object]]:
        """The filter of answers, the sizes and dates of records, and the source."""
        yield self._check_filter
        yield partial(settings_of, self.values)
        yield partial(check_source, self.values["source"])

    def _check_filter(self) -> None:
        AnswerFilter(
            rule=self.values["rule"],
            hard_share=self.values["hard_share"],
            threshold=self.values["threshold"],
        )
