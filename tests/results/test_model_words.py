"""Captions say which weights a packaged model has."""

from __future__ import annotations

import pytest

from helpers.models.packaged_weights import PACKAGED_WEIGHTS
from helpers.results.model_words import PACKAGED_WORDS, model_words


def test_every_packaged_model_has_its_words():
    assert set(PACKAGED_WORDS) == set(PACKAGED_WEIGHTS)
    assert model_words("gpt2-xl") == "gpt2-xl"


@pytest.mark.parametrize("name", PACKAGED_WEIGHTS)
def test_the_words_are_those_of_the_file(name):
    member = PACKAGED_WEIGHTS[name].members[0]
    words = PACKAGED_WORDS[name]
    assert words.rsplit("(", 1)[1].rstrip(")") in member
    assert ("Instruct" in member) == ("Instruct" in words)
