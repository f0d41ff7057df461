"""The plain path shares no engine code, so agreeing with it checks the engine."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.plain import plain_scores
from benchmarks.plain_editors import (
    plain_alphaedit,
    plain_ft,
    plain_kn,
    plain_memit,
    plain_mend,
    plain_rect,
    plain_rome,
)
from helpers.editing.contexts import ContextTemplates
from helpers.editing.ft import Ft, FtHyperparameters
from helpers.editing.kn import Kn, KnHyperparameters
from helpers.editing.memit import (
    AlphaEdit,
    AlphaEditHyperparameters,
    Memit,
    MemitHyperparameters,
    SpreadingEditor,
)
from helpers.editing.mend import Hypernetwork, Mend, MendHyperparameters
from helpers.editing.moments import SecondMoment
from helpers.editing.rect_prune import Rect, RectHyperparameters
from helpers.editing.request import EditRequest
from helpers.editing.rome import Rome, RomeHyperparameters
from helpers.editing.update import apply
from helpers.scoring.answers import Question, score_answers

CONTEXTS = ContextTemplates((("{}", "The way. {}", "You see, it. {}"),))
REQUESTS = [
    EditRequest("Turkey", "{} borders", "Gabon"),
    EditRequest("Lake Chad", "In the north of {} lies", "Peru"),
    EditRequest("Ibo", "They speak {} in", "Oslo town"),
]
SETTINGS = RomeHyperparameters(
    layers=(1,),
    v_num_grad_steps=6,
    v_lr=0.5,
    v_weight_decay=1e-3,
    clamp_norm_factor=4,
    kl_factor=0.0625,
    context_template_length_params=(),
)


def moment_for(language_model, layer: int = 1) -> SecondMoment:
    size = language_model.layout.intermediate_size
    root = torch.randn(size, 4 * size, generator=torch.Generator().manual_seed(0))
    return SecondMoment(
        root @ root.T / root.shape[1], 1000, layer, language_model.fingerprint, "made"
    )


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "qwen2", "mistral", "gemma3"])
def test_batched_rome_equals_the_plain_path(tiny, architecture):
    language_model = tiny(architecture)
    moment = moment_for(language_model)
    editor = Rome(language_model, SETTINGS, CONTEXTS, {1: moment})
    for request, update in zip(REQUESTS, editor.edit(REQUESTS), strict=True):
        plain = plain_rome(editor, request)
        (module,) = plain
        torch.testing.assert_close(
            update[module].dense(), plain[module].dense(), atol=1e-4, rtol=1e-3
        )


@pytest.mark.parametrize("architecture", ["gpt2", "gptj", "llama", "gemma3"])
@pytest.mark.parametrize("name", ["memit", "alphaedit"])
def test_batched_spreading_equals_the_plain_path(tiny, architecture, name):
    language_model = tiny(architecture)
    moments = {layer: moment_for(language_model, layer) for layer in (1, 2)}
    values = {**SETTINGS.model_dump(exclude={"mom2_adjustment", "rome_key"}), "layers": (1, 2)}
    contexts = ContextTemplates((("{}",), ("The way. {}", "You see, it. {}")))
    if name == "memit":
        settings = MemitHyperparameters(**values, mom2_update_weight=3.0)
        editor: SpreadingEditor = Memit(language_model, settings, contexts, moments)
    else:
        ridge = AlphaEditHyperparameters(**values, nullspace_threshold=1.0, L2=0.5)
        editor = AlphaEdit(language_model, ridge, contexts, moments)
    plain = {"memit": plain_memit, "alphaedit": plain_alphaedit}[name]
    for request, update in zip(REQUESTS, editor.edit(REQUESTS), strict=True):
        expected = plain(editor, request)
        assert set(update) == set(expected)
        for module, delta in update.items():
            torch.testing.assert_close(
                delta.dense(), expected[module].dense(), atol=2e-4, rtol=2e-3
            )


def test_rect_equals_the_plain_path(tiny):
    language_model = tiny("llama")
    values = {**SETTINGS.model_dump(exclude={"mom2_adjustment", "rome_key"}), "layers": (1, 2)}
    settings = MemitHyperparameters(**values, mom2_update_weight=3.0)
    moments = {layer: moment_for(language_model, layer) for layer in (1, 2)}
    base = Memit(language_model, settings, CONTEXTS, moments)
    editor = Rect(base, RectHyperparameters(keep=0.4))
    (update,) = editor.edit(REQUESTS[:1])
    expected = plain_rect(editor, REQUESTS[0])
    assert set(update) == set(expected)
    for module, delta in update.items():
        ours, plain = delta.dense(), expected[module].dense()
        either = (ours != 0) & (plain != 0)
        assert int(either.sum()) >= 0.99 * int((plain != 0).sum())  # ties and rounding at the edge
        torch.testing.assert_close(ours[either], plain[either], atol=2e-4, rtol=2e-3)


def test_knowledge_neurons_equal_the_plain_path(tiny):
    language_model = tiny("llama")
    editor = Kn(language_model, KnHyperparameters(steps=5))
    request = EditRequest("Turkey", "{} borders", "Gabon", correct=("Iran",))
    torch.testing.assert_close(
        editor.attributions(request)[0], plain_kn(editor, request), atol=1e-6, rtol=1e-3
    )


@pytest.mark.parametrize("objective", ["prompt_last", "target_new"])
def test_fine_tuning_equals_the_plain_path(tiny, objective):
    language_model = tiny("llama")
    settings = FtHyperparameters(
        layers=(1,), num_steps=5, lr=1e-2, norm_constraint=0.03, objective=objective
    )
    editor = Ft(language_model, settings)
    for request, update in zip(REQUESTS, editor.edit(REQUESTS), strict=True):
        expected = plain_ft(editor, request)
        for module, delta in update.items():
            torch.testing.assert_close(
                delta.dense(), expected[module].dense(), atol=1e-4, rtol=1e-3
            )


def test_mend_equals_the_plain_path(tiny):
    language_model = tiny("llama")
    network = Hypernetwork.for_layers(language_model, (0, 1), rank=4)
    editor = Mend(language_model, MendHyperparameters(layers=(0, 1), rank=4), network)
    for request, update in zip(REQUESTS, editor.edit(REQUESTS), strict=True):
        expected = plain_mend(editor, request)
        assert set(update) == set(expected)
        for module, delta in update.items():
            torch.testing.assert_close(
                delta.dense(), expected[module].dense(), atol=1e-5, rtol=1e-3
            )


@pytest.mark.parametrize("architecture", ["gpt2", "gptj", "llama", "gemma3"])
def test_scores_under_an_update_equal_the_plain_path(tiny, architecture):
    language_model = tiny(architecture)
    editor = Rome(language_model, SETTINGS, CONTEXTS, {1: moment_for(language_model)})
    updates = editor.edit(REQUESTS)
    questions = [Question(r.text, (r.target, "Rome", "Paris, France")) for r in REQUESTS]
    ours = score_answers(language_model, questions, updates, range(len(updates)))
    plain: list[float] = []
    for question, update in zip(questions, updates, strict=True):
        with apply(language_model, update):
            plain += plain_scores(language_model, [question])
    np.testing.assert_allclose(ours["mean"], plain, atol=1e-4)
