"""A request that cannot be edited is refused, with its record and the remedy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helpers.editing.ft import FtHyperparameters
from helpers.editing.presets import LayerHyperparameters
from helpers.editing.request import RequestError


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("subject", " ", "the subject is empty"),
        ("prompt", "no slot", "exactly one {}"),
        ("target", "", "the target is empty"),
        ("target", "Earth", "already a correct answer"),
        ("target", " Earth", "already a correct answer"),  # the same tokens
        ("further", (("Next to {} is", "Bo"),), "differ before the subject"),
        ("further", (("friend", "Bo"),), "exactly one"),
        ("further", (("{} has", " "),), "target is empty"),
    ],
)
def test_requests_that_cannot_be_edited(requests, field, value, message) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        replace(requests[0], **{field: value})
    assert "record a" in str(caught.value)


@pytest.mark.parametrize("layers", [(1, 1), (2, 1)])
def test_layers_are_named_once_and_in_order(layers) -> None:
    with pytest.raises(ValueError, match="ascending"):
        LayerHyperparameters(layers=layers)
    with pytest.raises(ValueError, match="at most 1 item"):
        FtHyperparameters(layers=(1, 2), num_steps=1, lr=1)
