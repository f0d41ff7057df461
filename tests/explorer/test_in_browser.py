"""The panels in JupyterLab in a real browser, with a tiny random model: choose, click, see."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

PATIENCE = 240  # seconds; JupyterLab and a kernel start slowly on a busy machine
MODEL = """
import sys

sys.path.insert(0, {folder!r})
import torch
from conftest import quick_explorer, short_records

from helpers.models.language_model import LanguageModel
from helpers.models.load import _ready
from helpers.models.shapes import random_model

sizes = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
settings = dict(model_type="llama", num_key_value_heads=2, max_position_embeddings=512, **sizes)
parts = random_model(settings, seed=0, dtype=torch.float32, device="cpu")
explorer = quick_explorer(_ready(LanguageModel("tiny", *parts)))
"""
EDIT_PANEL = """
from helpers.explorer.edit_panel import EditPanel

EditPanel(explorer, short_records())
"""
CHAIN_PANEL = """
from pathlib import Path

from helpers.data.knowgic import load_edits
from helpers.explorer.chain_panel import ChainPanel
from helpers.explorer.chains import ChainExplorer
from helpers.runs.store import ResultsStore

edits = load_edits("mini")[1:]
chains = ChainExplorer(explorer.language_model, edits, ResultsStore(Path({store!r})))
ChainPanel(chains, explorer)
"""
RUN_ALL = """
const done = arguments[0];
const app = window.jupyterapp;
app.restored
  .then(() => app.shell.currentWidget.context.sessionContext.ready)
  .then(() => app.commands.execute("notebook:run-all-cells"))
  .then(() => done(""), error => done(String(error)));
"""


@pytest.fixture
def lab(tmp_path) -> Iterator[str]:
    """Address of a JupyterLab with a notebook of the panels; it asks no other machine anything."""
    root = tmp_path / "root"
    root.mkdir()
    folder, store = str(Path(__file__).parent), str(tmp_path / "store")
    sources = (MODEL.format(folder=folder), EDIT_PANEL, CHAIN_PANEL.format(store=store))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(s) for s in sources])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(notebook, root / "panels.ipynb")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = ["--no-browser", "--allow-root", "--expose-app-in-browser", f"--port={port}"]
    flags += ["--ip=127.0.0.1", "--IdentityProvider.token=", f"--ServerApp.root_dir={root}"]
    flags += ["--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
    names = ("JUPYTER_CONFIG_DIR", "JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR")
    own = {name: str(tmp_path / name.lower()) for name in names}
    log = tmp_path / "lab.log"
    with log.open("w") as stream:
        command = [sys.executable, "-m", "jupyterlab", *flags]
        process = subprocess.Popen(command, stdout=stream, stderr=stream, env=os.environ | own)
    end = time.monotonic() + PATIENCE
    while "is running at" not in log.read_text():
        assert process.poll() is None, log.read_text()[-2000:]
        assert time.monotonic() < end, "JupyterLab did not start"
        time.sleep(0.2)
    yield f"http://127.0.0.1:{port}/doc/tree/panels.ipynb"
    process.terminate()
    process.wait(timeout=60)


def test_panels_answer_clicks_in_jupyterlab(browser, lab):
    from selenium.common.exceptions import ElementClickInterceptedException
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import Select, WebDriverWait

    def find(scope, css):
        return scope.find_element(By.CSS_SELECTOR, css)

    def click(element):
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        ready = WebDriverWait(browser, 30, ignored_exceptions=[ElementClickInterceptedException])
        ready.until(lambda _: element.click() is None)

    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.set_window_size(1100, 1600)
    browser.set_script_timeout(PATIENCE)
    browser.get(lab)
    wait = WebDriverWait(browser, PATIENCE)
    wait.until(lambda b: b.execute_script("return !!(window.jupyterapp?.shell.currentWidget)"))
    assert browser.execute_async_script(RUN_ALL) == ""
    wait.until(lambda b: len(b.find_elements(By.CSS_SELECTOR, ".explorer-panel")) == 2)
    edit, chain = browser.find_elements(By.CSS_SELECTOR, ".explorer-panel")
    wait.until(lambda _: chain.find_elements(By.CSS_SELECTOR, "button"))  # drawn after the panel
    wait.until(lambda _: edit.find_elements(By.CSS_SELECTOR, ".widget-text input"))

    answer = find(edit, ".widget-text input")
    answer.clear()
    answer.send_keys("Atlantis\t")
    click(find(edit, "input[type=checkbox]"))
    click(find(edit, "button"))
    wait.until(lambda _: "FT+APP: " in edit.text)
    assert "AFF_hard" in edit.text
    assert "What it says now" in edit.text
    picture = find(edit, "img")
    wait.until(lambda b: b.execute_script("return arguments[0].naturalWidth", picture) > 300)

    click(find(chain, "button"))
    wait.until(lambda _: "of 4 chains deducible before" in chain.text)
    chains = Select(chain.find_elements(By.CSS_SELECTOR, "select")[-1])
    assert chains.options[0].text == "all 4 of them"
    chains.select_by_index(4)
    wait.until(lambda _: "The capital of France is" in chain.text)
    if folder := os.environ.get("HELPERS_SCREENSHOTS"):
        browser.save_screenshot(f"{folder}/explorer.png")
