"""What captions say of a packaged model besides its name: which weights they are."""

from __future__ import annotations

# Every packaged model has its words; the light modules that write captions load no weights.
PACKAGED_WORDS = {
    "smollm2-135m": "SmolLM2-135M-Instruct, dequantised from 4 bits (Q4_1)",
    "gemma3-270m": "Gemma 3 270M, dequantised from 4 bits (q4_k_m)",
}


def model_words(name: str) -> str:
    """A model as captions name it; of a packaged one, which weights it has.

    >>> model_words("smollm2-135m")
    'smollm2-135m (SmolLM2-135M-Instruct, dequantised from 4 bits (Q4_1))'
    """
    words = PACKAGED_WORDS.get(name)
    return f"{name} ({words})" if words else name
