"""Fixtures shared by all tests: tiny random models, real data, a browser."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from helpers.models import LanguageModel
from helpers.models.load import _ready
from helpers.models.shapes import random_model

_LLAMA_LIKE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
}
TINY: dict[str, dict[str, Any]] = {
    "gpt2": {
        "model_type": "gpt2",
        "n_embd": 32,
        "n_layer": 4,
        "n_head": 4,
        "n_inner": 48,
        "n_positions": 512,
        "initializer_range": 0.3,
    },
    "gptj": {
        "model_type": "gptj",
        "n_embd": 32,
        "n_layer": 4,
        "n_head": 4,
        "n_inner": 48,
        "rotary_dim": 4,
        "n_positions": 512,
        "initializer_range": 0.3,
    },
    "llama": {"model_type": "llama", **_LLAMA_LIKE},
    "qwen2": {"model_type": "qwen2", **_LLAMA_LIKE},
    "mistral": {"model_type": "mistral", "sliding_window": None, **_LLAMA_LIKE},
    "gemma3": {
        "model_type": "gemma3_text",
        "head_dim": 8,
        "sliding_window": 24,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        **_LLAMA_LIKE,
    },
}


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

    return build


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


@pytest.fixture
def served(tmp_path) -> Iterator[Callable[[str], str]]:
    """Serve one code cell's widgets with Voilà: ``served(source)`` is their address."""
    pytest.importorskip("voila", reason="needs the extra 'book'")
    import nbformat

    started: list[subprocess.Popen] = []

    def serve(source: str) -> str:
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
        path = tmp_path / "served.ipynb"
        nbformat.write(notebook, path)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        flags = [f"--port={port}", "--no-browser", "--Voila.ip=127.0.0.1", "--show_tracebacks=True"]
        log = (tmp_path / "voila.log").open("w")
        command = [sys.executable, "-m", "voila", str(path), *flags]
        started.append(subprocess.Popen(command, stdout=log, stderr=log))
        _wait_for(port, started[-1], tmp_path / "voila.log")
        return f"http://127.0.0.1:{port}"

    yield serve
    for process in started:
        process.terminate()
        process.wait(timeout=60)


def _wait_for(port: int, process: subprocess.Popen, log: Path, *, seconds: float = 120) -> None:
    """Wait until something listens at the port."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise RuntimeError(f"Voilà did not start: {log.read_text()[-2000:]}")
