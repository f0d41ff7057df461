"""KN: knowledge neurons are found by integrated gradients and get the new answer's embedding."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from helpers.editing.hyperparameters import Hyperparameters


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
