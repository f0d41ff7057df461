"""What a locator is: a score per unit of the model for each sentence, at a stated granularity."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from helpers.locating.query import LocatorError, Query
from helpers.models.architectures import Layout
from helpers.models.language_model import LanguageModel

Granularity = Literal["layer", "neuron", "parameter"]
Scores = NDArray[np.float32]

GRANULARITIES: tuple[Granularity, ...] = ("layer", "neuron", "parameter")  # coarse to fine


class Locator(ABC):
    """Scores the units of a model for sentences; never changes the model.

    A *neuron* is an intermediate unit of an MLP (an input of its second matrix, after activation
    function and gate), a *parameter* an entry of an MLP matrix, a *layer* a whole MLP. Units are
    ordered by layer, then neuron, then the neuron's parameters.

    Attributes:
        name: short name, the key in result tables.
        granularity: of the scores.
        at_a_time: sentences per call that keep memory moderate.
    """

    name: str
    granularity: Granularity
    at_a_time: int = 16

    @abstractmethod
    def scores(self, language_model: LanguageModel, queries: Sequence[Query]) -> Scores:
        """Scores [queries, units] in fp32.

        Raises:
            LocatorError: a query lacks the answer or subject the method needs.
        """

    def shape(self, layout: Layout) -> tuple[int, ...]:
        """Shape whose product is the number of units: (layers, neurons, parameters) as far as fine."""
        if self.granularity == "layer":
            return (layout.blocks,)
        if self.granularity == "neuron":
            return layout.blocks, layout.intermediate_size
        return layout.blocks, layout.intermediate_size, layout.hidden_size

    def settings(self) -> dict[str, object]:
        """Everything besides the model that determines the scores, for result keys."""
        plain = {k: v for k, v in vars(self).items() if not k.startswith("_")}
        return {"class": type(self).__name__, **plain}


def pool(scores: Scores, shape: Sequence[int], granularity: Granularity) -> Scores:
    """Mean |score| of each coarser unit, so that locators can be compared at a common granularity.

    Args:
        scores: [n, units].
        shape: the locator's unit shape, (layers, …).
        granularity: the coarser granularity wanted; the scores' own returns them as they are.

    Raises:
        LocatorError: the wanted granularity is finer than the scores.
    """
    depth = GRANULARITIES.index(granularity) + 1
    if depth > len(shape):
        raise LocatorError(
            f"{GRANULARITIES[len(shape) - 1]} scores cannot be compared at {granularity} granularity;"
            " pool the finer method to the coarser one instead"
        )
    if depth == len(shape):
        return scores
    parts = np.abs(scores).reshape(len(scores), int(np.prod(shape[:depth])), -1)
    return parts.mean(axis=2, dtype=np.float32)
