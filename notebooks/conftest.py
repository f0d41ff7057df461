"""nbval compares what is deterministic; progress, warnings, HTML and vector graphics are not."""

from collections.abc import Iterator

import pytest


@pytest.hookimpl(hookwrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Leave stderr, HTML and SVG outputs out of the comparison (png is left out by nbval)."""
    for item in items:
        notebook = item.parent
        if hasattr(notebook, "skip_compare"):
            skipped = ("stderr", "text/html", "image/svg+xml")
            notebook.skip_compare = (*notebook.skip_compare, *skipped)
    yield
