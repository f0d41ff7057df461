"""One fresh process for each item of work, n at a time, and how far the work is."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from helpers import UserError

Environment = dict[str, str]
Item = TypeVar("Item")

PROGRESS_PREFIX = "progress: "  # how a line of ``Progress`` begins
_EVERY = 10.0  # seconds


def shared_cores(count: int) -> list[Environment]:
    """One environment for each of ``count`` processes, in which torch has its share of the cores."""
    if count < 1:
        raise UserError(f"--workers must be at least 1, got {count}")
    threads_each = max(1, (os.cpu_count() or 1) // count)
    variables = {"OMP_NUM_THREADS": str(threads_each)}
    if "OMP_NUM_THREADS" in os.environ:
        variables = {}
    return [variables] * count


def each_alone(
    function: Callable[[Item], None], items: Sequence[Item], environments: Sequence[Environment]
) -> Iterator[tuple[Item, int]]:
    """Call ``function`` on each item in a fresh process, at most one per environment at a time.

    Items are yielded as they end, with their process's exit code, below zero where a signal ended it.
    Whatever stops the iteration ends the processes, and so does the end of this one, even by SIGKILL.
    """
    # Spawned, not forked: CUDA and torch's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    items_waiting = deque(items)
    idle_environments = list(environments)
    running_processes: dict[Any, tuple[BaseProcess, Item, Environment]] = {}
    try:
        while items_waiting or running_processes:
            while items_waiting and idle_environments:
                item = items_waiting.popleft()
                variables = idle_environments.pop()
                process: BaseProcess = context.Process(
                    target=_start_worker, args=(variables, function, item)
                )
                process.start()
                running_processes[process.sentinel] = process, item, variables
            for sentinel in wait(list(running_processes)):
                ended_process, item, variables = running_processes.pop(sentinel)
                ended_process.join()
                idle_environments.append(variables)
                yield item, int(ended_process.exitcode or 0)
    finally:
        for process_left, _, _ in running_processes.values():
            process_left.terminate()
        for process_left, _, _ in running_processes.values():
            process_left.join()


def _start_worker(variables: Environment, function: Callable[[Item], None], item: Item) -> None:
    # An interrupt reaches every process of a terminal; the one that handed out the work ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    starting_process = multiprocessing.parent_process()

    def end_with_starter() -> None:
        if starting_process is not None:
            starting_process.join()
            os._exit(1)

    threading.Thread(target=end_with_starter, daemon=True).start()
    os.environ.update(variables)
    function(item)


def tell_nothing(_line: str) -> None:
    """Drop a line of progress."""


def tell_run(line: str) -> None:
    """Print a line of progress on stderr where ``helpers run`` listens to it; elsewhere drop it."""
    if "HELPERS_TELL" in os.environ:
        print(PROGRESS_PREFIX + line, file=sys.stderr, flush=True)


@contextmanager
def environment(variables: Environment) -> Iterator[None]:
    """Set environment variables, which the processes started in the block inherit; then put them back."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@dataclass
class Progress:
    """Tells how far work of ``total`` pieces is, at most every ten seconds; ``tell`` gets the line."""

    total: int
    unit: str = "records"
    tell: Callable[[str], None] = tell_run
    started_at: float = field(default_factory=time.monotonic)
    reported_at: float = field(default_factory=time.monotonic)

    def at(self, done: int) -> None:
        """The number that is done."""
        time_now = time.monotonic()
        if time_now - self.reported_at >= _EVERY and 0 < done < self.total:
            self.reported_at = time_now
            seconds_each = (time_now - self.started_at) / done
            time_left_in_words = span_in_words(seconds_each * (self.total - done))
            rate_in_words = f"{60 / seconds_each:.1f} a minute"
            self.tell(
                f"{done} of {self.total} {self.unit}, {rate_in_words}, {time_left_in_words} left"
            )


def span_in_words(seconds: float) -> str:
    """A span of time in its largest unit, such as ``2.5 h``."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
