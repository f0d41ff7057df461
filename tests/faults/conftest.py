"""The faults' table: what was tried, how often, and how often it was survived.

``HELPERS_FAULTS=all`` (``python -m tests.faults``) tries every kind many times, else a few times each.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

import pytest

THOROUGH = os.environ.get("HELPERS_FAULTS") == "all"
_TRIED: Counter[str] = Counter()
_SURVIVED: Counter[str] = Counter()

Tally = Callable[[str, bool], None]


@pytest.fixture
def tally() -> Tally:
    """Note one fault and whether it was survived, and fail where it was not."""

    def note(kind: str, survived: bool) -> None:
        _TRIED[kind] += 1
        _SURVIVED[kind] += survived
        assert survived, kind

    return note


@pytest.fixture
def times() -> Callable[[int, int], int]:
    """How often a fault is tried: the first number in the fast part, the second in the whole."""
    return lambda fast, whole: whole if THOROUGH else fast


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not _TRIED:
        return
    terminalreporter.section("faults: tried and survived")
    for kind in sorted(_TRIED):
        terminalreporter.write_line(f"{kind:58s} {_TRIED[kind]:5d} {_SURVIVED[kind]:5d}")
    total = f"{sum(_TRIED.values()):5d} {sum(_SURVIVED.values()):5d}"
    terminalreporter.write_line(f"{'in all':58s} {total}")
