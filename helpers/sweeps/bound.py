"""A worker ends with the process that started it, however that one ends."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time

_ON_PARENTS_DEATH = 1  # PR_SET_PDEATHSIG, of Linux's <sys/prctl.h>
_LOOK_EVERY = 1.0  # seconds


def end_with(parent: int) -> None:
    """End this process when its parent has ended: the kernel sees to it on Linux, else a thread.

    Args:
        parent: the process that started this one.
    """
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_ON_PARENTS_DEATH, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before we asked
        os._exit(1)


def end_with_starter() -> None:
    """End this worker with the process that handed it out, also where that ended before this call."""
    starter = multiprocessing.parent_process()
    if starter is not None:
        end_with(int(starter.pid or 0))


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY)
    os._exit(1)
