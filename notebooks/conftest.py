"""nbval compares what is deterministic: not progress, warnings, HTML or vector graphics."""

import pytest

NOT_COMPARED = ("stderr", "text/html", "image/svg+xml")


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Leave these outputs of a notebook out of the comparison (nbval itself leaves out png)."""
    if hasattr(collector, "skip_compare"):
        collector.skip_compare = (*collector.skip_compare, *NOT_COMPARED)
