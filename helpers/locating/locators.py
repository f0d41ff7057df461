"""Locators by name, with the settings of the published evaluation."""

from __future__ import annotations

from collections.abc import Callable

from helpers.locating.activations import ActivationMagnitude, GradientActivation
from helpers.locating.causal_tracing import CausalTracing
from helpers.locating.controls import ConstantScores, RandomScores
from helpers.locating.integrated_gradients import IntegratedGradients
from helpers.locating.locator import Locator
from helpers.locating.logit_attribution import LogitAttribution
from helpers.locating.query import LocatorError
from helpers.locating.saliency import Fisher, WeightSaliency

LOCATORS: dict[str, Callable[[], Locator]] = {
    "knowledge-neurons": IntegratedGradients,
    "gradient-activation": GradientActivation,
    "activation": ActivationMagnitude,
    "logit-neuron": lambda: LogitAttribution(granularity="neuron"),
    "logit-layer": lambda: LogitAttribution(granularity="layer"),
    "gradient-weight": WeightSaliency,
    "fisher": Fisher,
    "causal-tracing": CausalTracing,
    "random": RandomScores,
    "constant": ConstantScores,
}


def make_locator(name: str) -> Locator:
    """The locator called ``name``.

    Raises:
        LocatorError: an unknown name.
    """
    if name not in LOCATORS:
        raise LocatorError(f"no locator {name!r}; there are: {', '.join(LOCATORS)}")
    return LOCATORS[name]()
