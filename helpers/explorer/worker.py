"""Work beside the kernel's own thread, which goes on answering clicks: progress, and cancelling."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from torch import nn

EVERY = 0.5  # seconds between two reports


class CancelledError(ValueError):
    """Raised inside work that was cancelled."""


class Worker:
    """Runs one piece of work at a time; a model's forward passes are where it can be stopped.

    Args:
        module: is called once in every forward pass, such as the input embeddings.
        report: told the passes made and the seconds gone, now and then.
    """

    def __init__(self, module: nn.Module, report: Callable[[int, float], None]) -> None:
        self._module = module
        self._report = report
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, work: Callable[[], None]) -> None:
        """Begin; ``work`` handles its own errors, ``CancelledError`` among them."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """Stop at the next forward pass."""
        self._stop.set()

    def wait(self) -> None:
        """Return when the work is done."""
        if self._thread is not None:
            self._thread.join()

    def _run(self, work: Callable[[], None]) -> None:
        started, passes, said = time.monotonic(), 0, 0.0

        def count(*_: Any) -> None:
            nonlocal passes, said
            if self._stop.is_set():
                raise CancelledError("cancelled; nothing was changed")
            passes += 1
            gone = time.monotonic() - started
            if gone - said >= EVERY:
                said = gone
                self._report(passes, gone)

        hook = self._module.register_forward_pre_hook(count)
        try:
            work()
        finally:
            hook.remove()
