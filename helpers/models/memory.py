"""How much memory is free, for batch sizes that follow from it."""

from __future__ import annotations

import os

import torch

_UNKNOWN = 4 << 30  # assumed free where the system does not say


def free_bytes(device: torch.device) -> int:
    """Free memory of a GPU, or of the machine for the CPU, in bytes."""
    if device.type == "cuda":
        reserved = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + reserved  # torch uses its own cache first
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows, macOS
        return _UNKNOWN
