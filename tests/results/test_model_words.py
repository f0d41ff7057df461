"""Captions say which weights a packaged model has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helpers.models.weights import PACKAGED_WEIGHTS
from helpers.results.model_words import PACKAGED_WORDS, model_words


def test_every_packaged_model_has_its_words():
    assert set(PACKAGED_WORDS) == set(PACKAGED_WEIGHTS)
    assert model_words("gpt2-xl") == "gpt2-xl"


def test_a_local_folder_goes_by_its_last_name_with_type_and_size(tiny, tmp_path):
    made = tiny("llama")
    folder = tmp_path / "my-llama"
    made.model.save_pretrained(folder)
    named = replace(made, name=str(folder))
    size = f"{made.model.num_parameters() / 1e6:.3g} million parameters"
    assert model_words(str(folder)) == f"my-llama (llama, {size})"
    assert named.description == f"my-llama (llama, {size}), float32 on cpu"
    assert model_words("/not/here/other") == "other"


@pytest.mark.parametrize("name", PACKAGED_WEIGHTS)
def test_the_words_are_those_of_the_file(name):
    member = PACKAGED_WEIGHTS[name].members[0]
    words = PACKAGED_WORDS[name]
    assert words.rsplit("(", 1)[1].rstrip(")") in member
    assert ("Instruct" in member) == ("Instruct" in words)
