"""Which cells of a notebook take long, and how far they are, told while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from helpers.progress import TOLD

SLOW = 2.0  # seconds


@dataclass
class CellTimes:
    """Hooks for nbclient: cells slower than ``SLOW`` are told with the heading above them."""

    tell: Callable[[str], None]
    heading: str = ""
    began: float = field(default_factory=time.perf_counter)

    def hooks(self) -> dict[str, Any]:
        """What papermill takes."""
        return {
            "on_cell_start": self.begins,
            "on_cell_executed": self.ended,
            "stderr_file": self,
        }

    def begins(self, cell: Any, cell_index: int) -> None:
        """Called before every cell, markdown included."""
        titles = [line for line in cell.source.splitlines() if line.startswith("#")]
        if cell.cell_type == "markdown" and titles:
            self.heading = titles[-1].lstrip("# ")
        self.began = time.perf_counter()

    def write(self, text: str) -> None:
        """Called with what a cell writes to stderr: its lines of progress are told."""
        for line in text.splitlines():
            if line.startswith(TOLD):
                self.tell(f'{line.removeprefix(TOLD)}, in "{self.heading}"')

    def flush(self) -> None:
        """Nothing is held back."""

    def ended(self, cell: Any, cell_index: int, execute_reply: Any) -> None:
        """Called after every code cell."""
        seconds = time.perf_counter() - self.began
        if seconds > SLOW:
            self.tell(f'{seconds:.0f} s, cell {cell.execution_count} of "{self.heading}"')
