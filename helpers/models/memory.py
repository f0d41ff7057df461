"""How much memory is free, for batch sizes that follow from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import torch

_GROUPS = Path("/proc/self/cgroup")  # lines such as 0::/system.slice/job_17
_CONTROL = Path("/sys/fs/cgroup")


def free_bytes(device: torch.device) -> int:
    """Free memory of a GPU, or for the CPU what machine and job leave to this process, in bytes."""
    if device.type == "cuda":
        reserved = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + reserved  # torch uses its own cache first
    used = psutil.Process().memory_info().rss
    available = psutil.virtual_memory().available
    return int(min([available, *(max(0, limit - used) for limit in group_limits())]))


def group_limits(groups: Path = _GROUPS, control: Path = _CONTROL) -> Iterator[int]:
    """Limits in bytes that a cluster's job or a container sets to this process (Linux)."""
    for line in groups.read_text().splitlines() if groups.exists() else ():
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            root, name = control, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = control / "memory", "memory.limit_in_bytes"
        else:
            continue
        own = root / group.strip("/")
        for folder in (own, *own.parents):
            found = folder / name
            if folder.is_relative_to(root) and found.exists():
                limit = found.read_text().strip()
                if limit.isdigit():  # "max" is none
                    yield int(limit)
