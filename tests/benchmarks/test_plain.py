"""The plain path shares no engine code, so agreeing with it checks the engine."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.plain import plain_rome, plain_scores
from helpers.editing.context import ContextTemplates
from helpers.editing.hyperparameters import RomeHyperparameters
from helpers.editing.request import EditRequest
from helpers.editing.rome import Rome
from helpers.editing.second_moment import SecondMoment
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


def moment_for(language_model) -> SecondMoment:
    size = language_model.layout.intermediate_size
    root = torch.randn(size, 4 * size, generator=torch.Generator().manual_seed(0))
    return SecondMoment(root @ root.T / root.shape[1], 1000, 1, language_model.fingerprint, "made")


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "qwen2", "mistral", "gemma3"])
def test_batched_rome_equals_the_plain_path(tiny, architecture):
    language_model = tiny(architecture)
    moment = moment_for(language_model)
    editor = Rome(language_model, SETTINGS, CONTEXTS, {1: moment})
    for request, update in zip(REQUESTS, editor.edit(REQUESTS), strict=True):
        plain = plain_rome(language_model, request, CONTEXTS, moment, SETTINGS)
        (module,) = plain
        torch.testing.assert_close(
            update[module].dense(), plain[module].dense(), atol=1e-4, rtol=1e-3
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
