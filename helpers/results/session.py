"""The first lines of every notebook: seeds, and one line that says what runs where."""

from __future__ import annotations

import platform
import random
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from IPython.core.getipython import get_ipython

from helpers import __version__
from helpers.models.language_model import LanguageModel
from helpers.params import check_types, declared


def begin(language_model: LanguageModel | None = None, *, seed: int = 0) -> str:
    """Seed every generator and describe the session in one line.

    >>> print(begin(language_model, seed=0))

    Raises:
        UserError: a parameter of the notebook has not the type that its cell declares.
    """
    if session := get_ipython():
        _check_parameters(session.user_ns)
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    parts = [
        f"helpers {__version__}",
        f"Python {platform.python_version()}",
        f"torch {torch.__version__}",
        f"transformers {version('transformers')}",
    ]
    if language_model is not None:
        parts.append(
            f"{language_model.name} ({language_model.fingerprint}),"
            f" {language_model.dtype_name} on {language_model.device}"
        )
    return " | ".join([*parts, f"seed {seed}"])


def _check_parameters(names: dict[str, Any]) -> None:
    """The notebook's are those of the last cell that declares parameters and nothing else."""
    for source in reversed(names["In"]):
        try:
            parameters = declared(source, "")
        except (ValueError, SyntaxError):  # any other cell
            continue
        if parameters:
            return check_types(parameters, names)
