"""The first lines of every notebook: seeds, and one line that reports what runs where."""

from __future__ import annotations

import platform
import random
from importlib.metadata import version

import numpy as np
import torch

from helpers import __version__
from helpers.models.language_model import LanguageModel


def begin(language_model: LanguageModel | None = None, *, seed: int = 0) -> str:
    """Seed every generator and describe the session in one line."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    parts = [f"helpers {__version__}", f"Python {platform.python_version()}"]
    parts += [f"torch {torch.__version__}", f"transformers {version('transformers')}"]
    if made := language_model:
        parts.append(f"{made.name} ({made.fingerprint}), {made.dtype_name} on {made.device}")
    return " | ".join([*parts, f"seed {seed}"])
