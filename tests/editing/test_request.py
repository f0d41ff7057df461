"""A request that cannot be edited is refused, with its record and the remedy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from helpers.editing.ft import FtHyperparameters
from helpers.editing.presets import LayerHyperparameters
from helpers.editing.request import EditRequest, RequestError


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
        ("further", (("{} has", None),), "target is missing"),
        ("subject", float("nan"), "the subject is missing"),
        ("subject", True, "the subject is True, of type bool"),
        ("target", 1.5, "the target is 1.5, of type float"),
        ("correct", ("Earth", None), "text 2 of correct is missing"),
        ("correct", "Earth", "several texts, not 'Earth'"),
        ("correct", b"Earth", "correct is of type bytes"),
        ("false", {"Paris"}, "false is of type set"),
        ("target", "EARTH", "already a correct answer"),
    ],
)
def test_requests_that_cannot_be_edited(requests, field, value, message) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        replace(requests[0], **{field: value})
    assert "record a" in str(caught.value)


def test_numbers_are_their_text_and_an_empty_cell_is_no_answers() -> None:
    request = EditRequest(1999, "{} was", np.int32(7), [8], float("nan"))  # type: ignore[arg-type]
    assert request == EditRequest("1999", "{} was", "7", ("8",), ())


def test_a_request_without_a_record_is_named_by_its_subject() -> None:
    with pytest.raises(RequestError, match="fact about 'Mars': the target is missing"):
        EditRequest("Mars", "{} is", None)  # type: ignore[arg-type]


@pytest.mark.parametrize("layers", [(1, 1), (2, 1)])
def test_layers_are_named_once_and_in_order(layers) -> None:
    with pytest.raises(ValueError, match="ascending"):
        LayerHyperparameters(layers=layers)
    with pytest.raises(ValueError, match="at most 1 item"):
        FtHyperparameters(layers=(1, 2), num_steps=1, lr=1)
