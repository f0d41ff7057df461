"""Hyperparameters of every editor, under the ROME family's key names."""

from __future__ import annotations

import math
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator


class HyperparameterError(ValueError):
    """Raised for a model, editor, preset or key that does not exist, naming file and remedy."""


class Hyperparameters(BaseModel):
    """Base: unknown keys are errors, values are checked, instances are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class LayerHyperparameters(Hyperparameters):
    """Those of an editor that is told which blocks to edit."""

    layers: tuple[int, ...] = Field(min_length=1)

    @field_validator("layers")
    @classmethod
    def _ascending(cls, layers: tuple[int, ...]) -> tuple[int, ...]:
        if list(layers) != sorted(set(layers)):
            raise ValueError("layers must be in ascending order, each named once")
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


class RomeHyperparameters(VectorHyperparameters):
    """ROME (one layer). ``rome_key`` names the key in the denominator: the bare prompt's (the code
    most people ran) or the averaged one (the equation; R-ROME).
    """

    mom2_adjustment: bool = True
    rome_key: Literal["bare", "averaged"] = "bare"

    @property
    def moment_layers(self) -> tuple[int, ...]:
        """The layer, unless the key is used as it is."""
        return self.layers if self.mom2_adjustment else ()

    @model_validator(mode="after")
    def _one_layer(self) -> Self:
        if len(self.layers) != 1:
            raise ValueError("ROME edits exactly one layer")
        return self


class MemitHyperparameters(VectorHyperparameters):
    """MEMIT: consecutive layers; ``mom2_update_weight`` (lambda) weighs the second moment."""

    mom2_update_weight: float = Field(gt=0)


class AlphaEditHyperparameters(VectorHyperparameters):
    """AlphaEdit: directions with a second moment below ``nullspace_threshold`` are free to change.

    The threshold is absolute, so the dimension it leaves depends on the model's scale; it is
    reported with every edit. ``L2`` is the ridge added to the keys' Gram matrix.
    """

    nullspace_threshold: float = Field(gt=0)
    L2: float = Field(gt=0)


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


class KnHyperparameters(Hyperparameters):
    """Knowledge neurons.

    ``steps`` is m, the points of the integral (1 is the gradient at zero, which some public code
    ships). A neuron is in a prompt's coarse set above ``adaptive_threshold`` times the maximum over
    all layers, and in the refined set if it is in more than ``p`` of the prompts' coarse sets; with
    one prompt both are the same. ``at`` names what is scaled: the neuron's ``activation`` (after
    the gate) or the ``gate``'s output before the activation function.

    ``lambda_old`` times the embeddings of the old answer is subtracted from, ``lambda_new`` times
    those of the new one added to, every chosen neuron's output weights;
    ``lambda_old_one_token`` replaces ``lambda_old`` where the new answer is a single token.
    """

    steps: int = Field(default=20, gt=0)
    adaptive_threshold: float = Field(default=0.2, gt=0, lt=1)
    p: float = Field(default=0.4, ge=0, lt=1)
    at: Literal["activation", "gate"] = "activation"
    lambda_old: float = Field(default=1.0, ge=0)
    lambda_new: float = Field(default=1.0, ge=0)
    lambda_old_one_token: float | None = Field(default=None, ge=0)
    context_template_length_params: tuple[tuple[int, int], ...] = ()


class MendHyperparameters(LayerHyperparameters):
    """MEND: all MLP matrices of ``layers`` are edited.

    ``rank`` is that of the hypernetwork's two layers. ``network`` is the file of the trained
    hypernetwork: a path, or a name looked for in the packaged ``mend`` folder and the user's cache;
    empty means ``<model>.safetensors``.
    """

    rank: int = Field(default=1920, gt=0)
    network: str = ""


class WrapperHyperparameters(Hyperparameters):
    """Those of an editor upon another one, ``base``."""

    base: str


class RectHyperparameters(WrapperHyperparameters):
    """RECT: ``keep`` is the share of each matrix's entries whose change survives."""

    base: Literal["memit", "rome"] = "memit"
    keep: float = Field(default=0.4, gt=0, le=1)


class PruneHyperparameters(WrapperHyperparameters):
    """PRUNE: how singular values above the weight's largest one are drawn in.

    ``log`` with base a maps s to log_a(s) - log_a(s_max) + s_max, ``linear`` to (s + s_max) / 2.
    ``prune_compat="added"`` adds the restrained update to the full one, as one public port does.
    """

    base: Literal["memit", "rome", "alphaedit", "rect", "mend"] = "memit"
    restraint: Literal["log", "linear"] = "log"
    log_base: float = Field(default=math.e, gt=1)
    prune_compat: Literal["replaced", "added"] = "replaced"
