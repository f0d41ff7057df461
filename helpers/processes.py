"""Work in processes of its own: one fresh process for each item, so many at a time."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

Environment = dict[str, str]
Item = TypeVar("Item")


def shared_cores(count: int) -> list[Environment]:
    """One environment per process, in which torch has its share of this machine's cores.

    Args:
        count: processes at a time.

    Raises:
        ValueError: a count below one.
    """
    if count < 1:
        raise ValueError(f"--workers must be at least 1, got {count}")
    threads = max(1, (os.cpu_count() or 1) // count)
    shared = {} if "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": str(threads)}
    return [shared] * count


def each_alone(
    function: Callable[[Item], None], items: Sequence[Item], environments: Sequence[Environment]
) -> Iterator[tuple[Item, int]]:
    """Call ``function`` on each item in a fresh process, at most one per environment at a time.

    Items are begun in order and yielded as they end, each with its process's exit code: below zero
    where a signal ended it. Whatever stops the iteration (an interrupt, say) ends the processes.

    Args:
        function: importable, its items picklable; nothing is sent back.
        items: what there is to do.
        environments: variables that are set in a process before anything is imported.
    """
    # Spawned, not forked: CUDA and torch's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    waiting, idle = deque(items), list(environments)
    running: dict[Any, tuple[BaseProcess, Item, Environment]] = {}
    try:
        while waiting or running:
            while waiting and idle:
                item, environment = waiting.popleft(), idle.pop()
                process: BaseProcess = context.Process(
                    target=_begin, args=(environment, function, item)
                )
                process.start()
                running[process.sentinel] = process, item, environment
            for sentinel in wait(list(running)):
                ended, item, environment = running.pop(sentinel)
                ended.join()
                idle.append(environment)
                yield item, int(ended.exitcode or 0)
    finally:
        for left, _, _ in running.values():
            left.terminate()
        for left, _, _ in running.values():
            left.join()


@contextmanager
def environment(variables: Environment) -> Iterator[None]:
    """Variables that processes inherit, set for the block only."""
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


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM, which schedulers and shutdowns send, ends the block as Ctrl-C does; main thread only.

    Raises:
        KeyboardInterrupt: where the signal comes.
    """

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _begin(environment: Environment, function: Callable[[Item], None], item: Item) -> None:
    # An interrupt reaches every process of a terminal; the one that handed out the work ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(environment)
    function(item)
