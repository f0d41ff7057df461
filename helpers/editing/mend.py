"""MEND: a trained hypernetwork turns a fine-tuning gradient into a low-rank edit."""

from __future__ import annotations

from pydantic import Field

from helpers.editing.hyperparameters import LayerHyperparameters


class MendHyperparameters(LayerHyperparameters):
    """MEND: all MLP matrices of ``layers`` are edited.

    ``rank`` is that of the hypernetwork's two layers. ``network`` is the file of the trained
    hypernetwork: a path, or a name looked for in the packaged ``mend`` folder and the user's cache;
    empty means ``<model>.safetensors``.
    """

    rank: int = Field(default=1920, gt=0)
    network: str = ""
