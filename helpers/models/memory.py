"""How much memory is free, for batch sizes that follow from it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import psutil
import torch

from helpers.models.language_model import LanguageModel

_MOST_TOKENS = 16384  # of a pass
_LARGE = 48 * 2**30  # free bytes of a device on which many records are edited together
_GROUPS = Path("/proc/self/cgroup")  # lines such as 0::/system.slice/job_17
_CONTROL = Path("/sys/fs/cgroup")


def free_bytes(device: torch.device) -> int:
    """Free memory of a GPU, or for the CPU what machine and job leave to this process, in bytes."""
    if device.type == "cuda":
        reserved = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + reserved  # torch uses its own cache first
    return int(min([psutil.virtual_memory().available, *group_rooms()]))


def tokens_at_once(language_model: LanguageModel, usual: int, *, gradients: bool) -> int:
    """How many tokens a pass takes: the usual number, and up to 16,384 on a GPU with room.

    With gradients each block keeps a token's activations, about sixteen arrays of the hidden size
    and four of the MLP's; without, few blocks' are there at a time. Three fp32 arrays as wide as the
    vocabulary come on top. Rows are independent: other batches change results by rounding only.
    """
    if language_model.device.type == "cpu":  # a core is busy with the usual number
        return usual
    layout, vocabulary = language_model.layout, language_model.model.config.vocab_size
    of_a_block = 16 * layout.hidden_size + 4 * layout.intermediate_size
    blocks = layout.blocks if gradients else 4
    of_a_token = blocks * of_a_block * language_model.dtype.itemsize + 12 * vocabulary
    room = int(0.8 * free_bytes(language_model.device)) // of_a_token
    return max(usual, min(room, _MOST_TOKENS))


def records_at_once(device: torch.device, usual: int) -> int:
    """How many records a run edits and scores together: 128 on a GPU with room, else the usual."""
    large = device.type != "cpu" and free_bytes(device) >= _LARGE
    return max(usual, 128) if large else usual


def group_rooms(groups: Path = _GROUPS, control: Path = _CONTROL) -> Iterator[int]:
    """Bytes that the limits of a cluster's job or a container leave to all its processes (Linux).

    Files that were read and can be dropped do not count as used.
    """
    for line in groups.read_text().splitlines() if groups.exists() else ():
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            root, name, usage = control, "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            root = control / "memory"
            name, usage = "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        own = root / group.strip("/")
        for folder in (own, *own.parents):
            found = folder / name
            if folder.is_relative_to(root) and found.exists():
                limit = found.read_text().strip()
                if limit.isdigit():  # "max" is none
                    stat = (folder / "memory.stat").read_text()
                    droppable = re.search(r"^(?:total_)?inactive_file (\d+)$", stat, re.MULTILINE)
                    used = int((folder / usage).read_text()) - int(droppable[1] if droppable else 0)
                    yield max(0, int(limit) - used)
