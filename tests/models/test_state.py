"""What a session has set in torch neither reaches a result nor is changed by making one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from helpers import models
from helpers.editing.build import build_editor
from helpers.editing.corpus import SelfCorpus
from helpers.editing.interventions import Delta
from helpers.editing.moments import second_moments
from helpers.editing.request import EditRequest
from helpers.editing.weight_edit import apply
from helpers.facts import Fact, edit_facts
from helpers.locating.locators import LOCATORS, make_locator
from helpers.locating.query import Sentence, encode
from helpers.models import LanguageModel
from helpers.models.load import _ready
from helpers.models.shapes import random_model
from helpers.models.state import own_state
from helpers.scoring.answers import Question, score_answers
from helpers.scoring.responses import Sampling, sample_responses
from tests.conftest import TINY

FAST = {"layers": [1], "num_steps": 5, "lr": 0.05, "norm_constraint": 0.5}  # of FT
REQUESTS = [EditRequest(name, "The land of {} is near", "Chad") for name in ("Peru", "Mali")]


@contextmanager
def grad_off() -> Iterator[None]:
    with torch.set_grad_enabled(False):
        yield


@contextmanager
def default(kind: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(kind)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def tf32() -> Iterator[None]:
    """By the newer of torch's two ways, beside which the older one's value cannot be read."""
    before = torch.backends.fp32_precision
    torch.backends.fp32_precision = "tf32"
    try:
        yield
    finally:
        torch.backends.fp32_precision = before


@contextmanager
def half_digits() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


SESSIONS: dict[str, Callable[[], Any]] = {
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "grad_off": grad_off,
    "float64": lambda: default(torch.float64),
    "float16": lambda: default(torch.float16),
    "bfloat16": lambda: default(torch.bfloat16),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "device": lambda: torch.device("meta"),
    "half digits": half_digits,
    "tf32": tf32,
    "numpy": lambda: np.errstate(all="raise"),
}


def settings() -> tuple[Any, ...]:
    switches = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    mixed = torch.is_autocast_enabled("cpu")
    defaults = torch.get_default_dtype(), torch.get_default_device()
    products = (
        torch.backends.cuda.matmul.fp32_precision,
        torch.backends.mkldnn.matmul.fp32_precision,
    )
    return (*switches, mixed, *defaults, *products, np.geterr())


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A function that empties the user's cache, so that everything is made anew."""

    def empty(name: str) -> None:
        (tmp_path / name).mkdir()
        monkeypatch.setenv("HELPERS_CACHE", str(tmp_path / name))

    return empty


def scored(lm: LanguageModel) -> np.ndarray:
    return score_answers(lm, [Question("Peru is", ("Mali", "Chad"))])["sum"].to_numpy()


def drawn(lm: LanguageModel) -> list[list[str]]:
    return sample_responses(lm, ["Peru is"], n=2, sampling=Sampling(max_new_tokens=6))


def edited(lm: LanguageModel, method: str) -> list[Delta]:
    """What independent, joint and sequential edits add to the weights."""
    preset = FAST if method.startswith("ft") else "generic"
    editor = build_editor(method, lm, preset=preset, corpus="self-4x64")
    updates = [*editor.edit(REQUESTS), editor.edit_jointly(REQUESTS)]
    updates += list(editor.edit_sequentially(REQUESTS))
    return [delta for update in updates for delta in update.values()]


def same(found: Any, expected: Any) -> None:
    for pair in zip(found, expected, strict=True):
        one, other = (each.dense().numpy() if isinstance(each, Delta) else each for each in pair)
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("method", "session"),
    [
        *(("ft-m", session) for session in SESSIONS),
        *(("memit", session) for session in ("inference", "float64", "device")),
        ("rome", "bfloat16"),
        ("rect", "autocast"),
    ],
)
def test_edits_are_the_same_in_every_session(tiny, cache, method, session):
    cache("usual")
    expected = edited(tiny("llama"), method)
    cache("session")
    with SESSIONS[session]():
        before = settings()
        found = edited(tiny("llama"), method)
        assert settings() == before
    same(found, expected)


@pytest.mark.parametrize("session", SESSIONS.values(), ids=SESSIONS)
def test_models_scores_and_statistics_are_the_same_in_every_session(tmp_path, cache, session):
    for part in random_model(TINY["gpt2"], seed=0, dtype=torch.float32, device="cpu"):
        part.save_pretrained(tmp_path / "model")

    def results() -> tuple[LanguageModel, list[Any]]:
        lm = models.load(str(tmp_path / "model"))
        queries = encode(lm, [Sentence("The capital of Peru is _", "Lima", "Peru")])
        named = [name for name in LOCATORS if name != "fisher"]
        found = [make_locator(name).scores(lm, queries) for name in named]
        moment = second_moments(lm, [1], SelfCorpus(4, 32))[1].matrix
        return lm, [scored(lm), moment.clone().numpy(), *found]

    cache("usual")
    expected_model, expected = results()
    cache("session")
    with session():
        model, found = results()
        texts = drawn(model)
    same(found, expected)
    assert texts == drawn(expected_model)
    # What was loaded and cached in such a session is edited after it as well.
    assert edit_facts(model, [Fact("Peru", "{} is", "Chad")], editor="ft-m", preset=FAST)


@pytest.fixture
def dropping() -> LanguageModel:
    """A GPT-2 that drops half of everything while it trains."""
    drops = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.5)
    parts = random_model({**TINY["gpt2"], **drops}, seed=0, dtype=torch.float32, device="cpu")
    return _ready(LanguageModel("dropping", *parts))


def test_a_model_in_training_mode_gives_the_results_of_evaluation(dropping, cache):
    queries = encode(dropping, [Sentence("The capital of Peru is _", "Lima", "Peru")])

    def results() -> list[Any]:
        named = ("knowledge-neurons", "gradient-weight", "causal-tracing")
        found = [make_locator(name).scores(dropping, queries) for name in named]
        moment = second_moments(dropping, [1], SelfCorpus(4, 32))[1].matrix.numpy()
        return [scored(dropping), moment, *found, *edited(dropping, "ft-m")]

    cache("evaluation")
    expected, texts = results(), drawn(dropping)
    cache("training")
    dropping.network.train()
    same(results(), expected)
    assert drawn(dropping) == texts
    assert all(module.training for module in dropping.network.modules())
    dropping.network.eval()
    dropping.module("transformer.h.1").train()
    same([scored(dropping)], expected[:1])
    assert dropping.module("transformer.h.1.mlp.dropout").training
    assert not dropping.network.training


def test_between_two_edits_of_a_sequence_the_session_is_the_callers(tiny):
    editor = build_editor("ft-m", tiny("llama"), preset=FAST)
    with torch.no_grad():
        before = settings()
        for _ in editor.edit_sequentially(REQUESTS):
            assert settings() == before
        steps = editor.edit_sequentially(REQUESTS)
        next(steps)
        steps.close()
        assert settings() == before


def test_settings_come_back_after_an_error(tiny):
    with default(torch.float64), torch.inference_mode():
        before = settings()
        with own_state():
            usual = (True, False, False, torch.float32, torch.device("cpu"), "ieee", "ieee")
            assert settings()[:-1] == usual
        with pytest.raises(ValueError, match="owners"):
            score_answers(tiny("llama"), [Question("x", ("y",))], [], [3])
        assert settings() == before


def test_an_update_is_written_in_every_session(tiny):
    (update,) = build_editor("ft-m", tiny("llama"), preset=FAST).edit(REQUESTS[:1])
    with apply(tiny("llama"), update):
        expected = scored(tiny("llama"))
    for session in SESSIONS.values():
        with session(), apply(tiny("llama"), update):
            same([scored(tiny("llama"))], [expected])
