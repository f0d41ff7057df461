"""Which cells of a notebook take long, and how far they are, told while it runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from helpers.progress import TOLD, in_words

SLOW = 2.0  # seconds
SILENT = 60.0  # seconds at most between two lines about a running cell


@dataclass
class CellTimes:
    """Hooks for nbclient: cells slower than ``SLOW`` are told with the heading above them.

    While a cell runs, a line comes at least every ``SILENT`` seconds, with the last progress it told.
    """

    tell: Callable[[str], None]
    heading: str = ""
    began: float = field(default_factory=time.perf_counter)
    last: str = ""
    over: threading.Event = field(default_factory=threading.Event)

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
        self.began, self.last, self.over = time.perf_counter(), "", threading.Event()
        if cell.cell_type == "code":
            threading.Thread(target=self._remind, args=(self.over,), daemon=True).start()

    def write(self, text: str) -> None:
        """Called with what a cell writes to stderr: its lines of progress are told."""
        for line in text.splitlines():
            if line.startswith(TOLD):
                progress = line.removeprefix(TOLD)
                self.last = f"; after {self._seconds()}: {progress}"
                self.tell(f'{progress}, in "{self.heading}"')

    def flush(self) -> None:
        """Nothing is held back."""

    def ended(self, cell: Any, cell_index: int, execute_reply: Any) -> None:
        """Called after every code cell."""
        self.over.set()
        seconds = time.perf_counter() - self.began
        if seconds > SLOW:
            self.tell(f'{seconds:.0f} s, cell {cell.execution_count} of "{self.heading}"')

    def _remind(self, over: threading.Event) -> None:
        while not over.wait(SILENT):
            self.tell(f'running for {self._seconds()}{self.last}, in "{self.heading}"')

    def _seconds(self) -> str:
        return in_words(time.perf_counter() - self.began)
