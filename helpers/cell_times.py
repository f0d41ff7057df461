"""Which cells of a notebook take long, told while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

SLOW = 2.0  # seconds


@dataclass
class CellTimes:
    """Hooks for nbclient: cells slower than ``SLOW`` are told with the heading above them."""

    tell: Callable[[str], None]
    heading: str = ""
    began: float = field(default_factory=time.perf_counter)

    def begins(self, cell: Any, cell_index: int) -> None:
        """Called before every cell, markdown included."""
        titles = [line for line in cell.source.splitlines() if line.startswith("#")]
        if cell.cell_type == "markdown" and titles:
            self.heading = titles[-1].lstrip("# ")
        self.began = time.perf_counter()

    def ended(self, cell: Any, cell_index: int, execute_reply: Any) -> None:
        """Called after every code cell."""
        seconds = time.perf_counter() - self.began
        if seconds > SLOW:
            self.tell(f'{seconds:.0f} s, cell {cell.execution_count} of "{self.heading}"')
