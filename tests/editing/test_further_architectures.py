"""Architectures beside the papers' own: what editors promise holds on each."""

from __future__ import annotations

import pytest
import torch

from helpers.editing.ft import Ft, FtHyperparameters
from helpers.editing.kn import Kn, KnHyperparameters
from helpers.editing.update import apply

ARCHITECTURES = ["qwen3", "olmo2", "gpt_neox", "falcon", "phi3"]


@pytest.fixture(params=["rome", "memit", "ft", "kn"])
def editor_on(request, make_editor):
    """A function from a tiny model to an editor of it."""

    def build(language_model):
        if request.param == "ft":
            return Ft(language_model, FtHyperparameters(layers=(2,), lr=1e-2, num_steps=5), None)
        if request.param == "kn":
            return Kn(
                language_model, KnHyperparameters(), make_editor("rome", language_model).contexts
            )
        return make_editor(request.param, language_model)

    return build


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_batched_equals_alone_and_overlay_equals_written(
    tiny, editor_on, requests, target_scores, architecture
):
    language_model = tiny(architecture)
    editor = editor_on(language_model)
    together = editor.edit(requests)
    alone = [editor.edit([request])[0] for request in requests]
    scores = target_scores(language_model, requests, together)
    for request, one, other, score in zip(requests, together, alone, scores, strict=True):
        assert one
        assert set(one) == set(other)
        for module in one:
            scale = float(other[module].dense().abs().max())
            torch.testing.assert_close(
                one[module].dense(), other[module].dense(), rtol=1e-3, atol=1e-4 * scale
            )
        with apply(language_model, one):
            written = target_scores(language_model, [request])
        torch.testing.assert_close(score[None], written, rtol=0, atol=1e-4)
