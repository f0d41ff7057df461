"""What hyperparameters of editors have in common; each editor's own stand beside it."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator


class Hyperparameters(BaseModel):
    """Base: unknown keys are errors, values are checked, instances are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @property
    def moment_layers(self) -> tuple[int, ...]:
        """Layers whose second moments the edit is solved with; none by default."""
        return ()


class LayerHyperparameters(Hyperparameters):
    """Those of an editor that is told which blocks to edit."""

    one_layer: ClassVar[bool] = False  # whether the editor edits no more than one
    layers: tuple[int, ...] = Field(min_length=1)

    @field_validator("layers")
    @classmethod
    def _ascending(cls, layers: tuple[int, ...]) -> tuple[int, ...]:
        if list(layers) != sorted(set(layers)):
            raise ValueError("layers must be in ascending order, each named once")
        if cls.one_layer and len(layers) != 1:
            raise ValueError("this editor edits exactly one layer")
        return layers


class VectorHyperparameters(LayerHyperparameters):
    """What ROME, MEMIT and AlphaEdit share: the optimised vector.

    ``v_loss_layer`` is not here: the loss is read from the model's own logits, as all published
    settings amount to.
    """

    v_num_grad_steps: int = Field(gt=0)
    v_lr: float = Field(gt=0)
    v_weight_decay: float = Field(ge=0)
    clamp_norm_factor: float = Field(gt=0)
    kl_factor: float = Field(ge=0)
    context_template_length_params: tuple[tuple[int, int], ...]
    context_template_start: Literal["words", "end_of_text"] = "words"
    stop_on: Literal["nll", "total"] = "total"
    stop_threshold: float = 0.05

    @property
    def moment_layers(self) -> tuple[int, ...]:
        """Layers whose second moments the edit is solved with."""
        return self.layers


class WrapperHyperparameters(Hyperparameters):
    """Those of an editor that changes the updates of another one, ``base``."""

    base: str
