"""FT: fine-tuning one MLP matrix on one fact, inside an L-infinity bound.

``ft-l`` reads all target tokens from the single distribution after the prompt (objective
``prompt_last``), as the code called FT-L does; ``ft-m`` is ordinary teacher-forced next-token loss
(``target_new``).
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from helpers.editing.hyperparameters import LayerHyperparameters


class FtHyperparameters(LayerHyperparameters):
    """FT on one layer.

    ``norm_constraint`` bounds every entry's change (L-infinity; None: unbounded). An edit whose loss
    is below ``stop_threshold`` takes no further step. A module's bias, where it has one (GPT-2,
    GPT-J), is trained with its matrix.
    """

    num_steps: int = Field(gt=0)
    lr: float = Field(gt=0)
    norm_constraint: float | None = Field(default=None, gt=0)
    objective: Literal["prompt_last", "target_new"] = "prompt_last"
    stop_threshold: float = 1e-2

    @model_validator(mode="after")
    def _one_layer(self) -> Self:
        if len(self.layers) != 1:
            raise ValueError("FT edits exactly one layer")
        return self
