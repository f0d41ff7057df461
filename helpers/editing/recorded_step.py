"""One step of an optimisation recorded once and played again, as a CUDA graph does it.

A step of few rows costs less than the hundreds of calls that start its kernels. A graph starts them
all at once, reading and writing the same memory each time: what changes between steps is written in
place, and what a step finds is overwritten by the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

Found = TypeVar("Found")
Recorder = Callable[[Callable[[], Found]], Callable[[], Found]]
"""From a step to one that finds the same from what its tensors hold when it is called."""

WARM_UP = 3  # runs before a recording, in which libraries take their workspaces


def cuda_graph(step: Callable[[], Found]) -> Callable[[], Found]:
    """The step as a CUDA graph; the tensors that it returns are the same ones at every call.

    Raises:
        RuntimeError: the step waits for the device, or there is none.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()

    def play() -> Found:
        graph.replay()
        return found

    return play
