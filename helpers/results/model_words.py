"""What captions report of a model besides its name: which weights it has."""

from __future__ import annotations

import json
from pathlib import Path

# Every packaged model has its words; the light modules that write captions load no weights.
PACKAGED_WORDS = {
    "smollm2-135m": "SmolLM2-135M-Instruct, dequantised from 4 bits (Q4_1)",
    "gemma3-270m": "Gemma 3 270M, dequantised from 4 bits (q4_k_m)",
}


def model_words(name: str) -> str:
    """A model as captions name it: a packaged one with its weights, a folder by its last name.

    >>> model_words("smollm2-135m")
    'smollm2-135m (SmolLM2-135M-Instruct, dequantised from 4 bits (Q4_1))'
    """
    folder = Path(name).expanduser()
    if name in PACKAGED_WORDS:
        return f"{name} ({PACKAGED_WORDS[name]})"
    if not (folder.is_absolute() or folder.is_dir()):
        return name
    if not (folder / "config.json").is_file():  # drawn elsewhere
        return folder.name
    from helpers.models.weights import stored_parameters  # loads torch

    kind = json.loads((folder / "config.json").read_text("utf-8"))["model_type"]
    size = (stored_parameters(folder) or 0) / 1e6
    return f"{folder.resolve().name} ({kind}, {size:.3g} million parameters)"
