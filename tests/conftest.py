"""Fixtures shared by all tests: tiny random models, real data, a browser."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from tokenizers import Tokenizer, pre_tokenizers, processors
from tokenizers import models as token_models
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

from helpers.editing.rome import RomeHyperparameters
from helpers.models import LanguageModel
from helpers.models.load import _ready
from helpers.models.shapes import random_model
from tests.loopback_only import sitecustomize as sitecustomize  # no test reaches another machine

# Tests share their machine with others: how long one example takes says nothing about the code.
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")

PATIENCE = 240  # seconds; JupyterLab and a kernel start slowly on a busy machine
_LLAMA_LIKE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
}
_GPT2_LIKE = {
    "n_embd": 32,
    "n_layer": 4,
    "n_head": 4,
    "n_inner": 48,
    "n_positions": 512,
    "initializer_range": 0.3,
}
TINY: dict[str, dict[str, Any]] = {
    "gpt2": {"model_type": "gpt2", **_GPT2_LIKE},
    "gptj": {"model_type": "gptj", "rotary_dim": 4, **_GPT2_LIKE},
    "llama": {"model_type": "llama", **_LLAMA_LIKE},
    "qwen2": {"model_type": "qwen2", **_LLAMA_LIKE},
    "mistral": {"model_type": "mistral", "sliding_window": None, **_LLAMA_LIKE},
    "qwen3": {"model_type": "qwen3", "head_dim": 8, **_LLAMA_LIKE},
    "olmo2": {"model_type": "olmo2", **_LLAMA_LIKE},
    "phi3": {"model_type": "phi3", "sliding_window": None, **_LLAMA_LIKE},
    "gpt_neox": {"model_type": "gpt_neox", **_LLAMA_LIKE},
    "falcon": {
        "model_type": "falcon",
        "ffn_hidden_size": 48,
        "new_decoder_architecture": True,
        "num_kv_heads": 2,
        **_LLAMA_LIKE,
    },
    "windowed": {"model_type": "mistral", **_LLAMA_LIKE, "sliding_window": 24},
    "gemma3": {
        "model_type": "gemma3_text",
        "head_dim": 8,
        "sliding_window": 24,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        **_LLAMA_LIKE,
    },
    "smollm3": {"model_type": "smollm3", "no_rope_layer_interval": 2, **_LLAMA_LIKE},
    "gemma2": {
        "model_type": "gemma2",
        "head_dim": 8,
        "query_pre_attn_scalar": 8,
        "sliding_window": 24,
        "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 5.0,
        **_LLAMA_LIKE,
    },
    "olmo3": {
        "model_type": "olmo3",
        "sliding_window": 24,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        **_LLAMA_LIKE,
    },
    "granite": {
        "model_type": "granite",
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.5,
        "attention_multiplier": 0.3,
        "logits_scaling": 2.0,
        **_LLAMA_LIKE,
    },
    "ministral": {
        "model_type": "ministral",
        "head_dim": 8,
        "sliding_window": 24,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        **_LLAMA_LIKE,
    },
    "ministral3": {
        "model_type": "ministral3",
        "head_dim": 8,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 1e4,
            "factor": 8.0,
            "original_max_position_embeddings": 64,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "llama_4_scaling_beta": 0.1,
        },
        **_LLAMA_LIKE,
    },
    "glm": {"model_type": "glm", "head_dim": 8, **_LLAMA_LIKE},
    "glm4": {"model_type": "glm4", "head_dim": 8, **_LLAMA_LIKE},
}
# Architectures besides those of the papers.
FURTHER = ["qwen3", "olmo2", "gpt_neox", "falcon", "phi3", "smollm3", "gemma2", "olmo3"]
FURTHER += ["granite", "ministral", "ministral3", "glm", "glm4"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs official data or reference values, so that it can be run by itself."""
    for item in items:
        fixtures = {"data_folder", "reference_folder"} & set(getattr(item, "fixturenames", ()))
        reasons = [mark.kwargs.get("reason", "") for mark in item.iter_markers("skipif")]
        if fixtures or any("HELPERS_DATA" in reason for reason in reasons):
            item.add_marker("data")


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    """Every test draws the same, whatever ran before it."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def tiny() -> Callable[..., LanguageModel]:
    """A tiny random model of an architecture, made once a session: ``tiny("gpt2")``."""
    made: dict[tuple[str, int], LanguageModel] = {}

    def build(architecture: str, seed: int = 0) -> LanguageModel:
        key = (architecture, seed)
        if key not in made:
            model, tokenizer = random_model(
                TINY[architecture], seed=seed, dtype=torch.float32, device="cpu"
            )
            made[key] = _ready(LanguageModel(f"tiny-{architecture}", model, tokenizer))
        return made[key]

    build.made = made  # type: ignore[attr-defined]
    return build


@pytest.fixture(autouse=True)
def _tiny_models_stay_as_they_are(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that writes into a shared model would decide what the tests after it find."""
    if "tiny" not in request.fixturenames:
        yield
        return
    build = request.getfixturevalue("tiny")
    before = {key: _weight(model) for key, model in build.made.items()}
    yield
    assert {key: _weight(build.made[key]) for key in before} == before


def _weight(lm: LanguageModel) -> float:
    return sum(float(p.detach().double().abs().sum()) for p in lm.network.parameters())


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Folder of local benchmark data; the test is skipped where ``HELPERS_DATA`` names none."""
    folder = os.environ.get("HELPERS_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("HELPERS_DATA names no folder of benchmark data")
    return Path(folder)


@pytest.fixture(scope="session")
def reference_folder() -> Path:
    """Folder of reference values from the authors' code (``HELPERS_REFERENCE``); else skipped."""
    data = os.environ.get("HELPERS_DATA", "")
    folder = Path(os.environ.get("HELPERS_REFERENCE") or Path(data).parent / "reference")
    if not folder.is_dir():
        pytest.skip("HELPERS_REFERENCE names no folder of reference values")
    return folder


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium under Selenium that reaches this machine only; else skipped."""
    pytest.importorskip("selenium", reason="needs the extra 'book'")
    from selenium import webdriver

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if not (chromium and driver):
        pytest.skip("no browser: install chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu"):
        options.add_argument(f"--{flag}")
    options.add_argument("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    opened.set_page_load_timeout(120)
    yield opened
    opened.quit()


_RUN_ALL = """
const done = arguments[0];
const app = window.jupyterapp;
app.restored
  .then(() => app.shell.currentWidget.context.sessionContext.ready)
  .then(() => app.commands.execute("notebook:run-all-cells"))
  .then(() => done(""), error => done(String(error)));
"""


@pytest.fixture
def lab(browser, tmp_path) -> Iterator[Callable[..., Any]]:
    """Run code cells in JupyterLab: ``lab(source, …)`` is the browser that shows their outputs."""
    import nbformat
    from selenium.webdriver.support.ui import WebDriverWait

    started: list[subprocess.Popen] = []

    def show(*sources: str) -> Any:
        root = tmp_path / "lab"
        root.mkdir()
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(s) for s in sources])
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
        nbformat.write(notebook, root / "cells.ipynb")
        process, address = start_lab(root, tmp_path)
        started.append(process)
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.set_window_size(1100, 1600)
        browser.set_script_timeout(PATIENCE)
        browser.get(f"{address}/doc/tree/cells.ipynb")
        opened = "return Boolean(window.jupyterapp?.shell.currentWidget)"
        WebDriverWait(browser, PATIENCE).until(lambda b: b.execute_script(opened))
        assert browser.execute_async_script(_RUN_ALL) == ""
        return browser

    yield show
    for process in started:
        process.terminate()
        process.wait(timeout=60)


def start_lab(
    folder: Path, scratch: Path, arguments: Sequence[str] = ()
) -> tuple[subprocess.Popen, str]:
    """``jupyter lab`` in a folder, without the user's settings, and its address; it asks no other machine
    for news.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = ["--no-browser", "--allow-root", "--expose-app-in-browser", f"--port={port}"]
    flags += ["--ip=127.0.0.1", "--IdentityProvider.token="]
    flags += ["--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
    names = ("JUPYTER_CONFIG_DIR", "JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR")
    own = {name: str(scratch / name.lower()) for name in names}
    log = scratch / "lab.log"
    with log.open("w") as stream:
        command = [sys.executable, "-m", "jupyterlab", *arguments, *flags]
        environment = os.environ | own
        process = subprocess.Popen(
            command, cwd=folder, stdout=stream, stderr=stream, env=environment
        )
    end = time.monotonic() + PATIENCE
    while "is running at" not in log.read_text():
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            raise RuntimeError(f"JupyterLab did not start: {log.read_text()[-2000:]}")
        time.sleep(0.2)
    return process, f"http://127.0.0.1:{port}"


@pytest.fixture
def rome_settings():
    """Quick settings of ROME for a tiny model, without statistics."""
    return RomeHyperparameters(
        layers=(1,),
        v_num_grad_steps=4,
        v_lr=0.5,
        v_weight_decay=1e-3,
        clamp_norm_factor=4,
        kl_factor=0.0625,
        context_template_length_params=(),
        mom2_adjustment=False,
    )


WORDS = "[PAD] [CLS] [SEP] [MASK] [UNK] a the capital of Utopia is Amaurot speaks people Latin in"


@pytest.fixture(scope="session")
def tiny_masked() -> LanguageModel:
    """A tiny random BERT with a word-level tokenizer."""
    words = WORDS.split()
    tokenizer = Tokenizer(
        token_models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        unk_token="[UNK]",
    )
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=3,
        num_attention_heads=2,
        initializer_range=0.3,
    )
    return _ready(LanguageModel("tiny-bert", BertForMaskedLM(config), fast))


@pytest.fixture(params=["gpt2", "gptj", "llama", "qwen2", "mistral", "gemma3", "bert"])
def any_model(
    request: pytest.FixtureRequest, tiny: Callable[..., LanguageModel], tiny_masked: LanguageModel
) -> LanguageModel:
    """A tiny model of each causal architecture, and the masked one."""
    return tiny_masked if request.param == "bert" else tiny(request.param)
