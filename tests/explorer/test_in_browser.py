"""The panels in JupyterLab in a real browser, with a tiny random model: choose, click, see."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
PATIENCE = 240  # seconds, on a busy machine
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
from helpers.explorer.panels import EditPanel

EditPanel(explorer, short_records())
"""
CHAIN_PANEL = """
from pathlib import Path

from helpers.thinkedit.knowgic import load_edited_graphs
from helpers.explorer.one_edit import ChainExplorer
from helpers.explorer.panels import ChainPanel
from helpers.results.store import ResultsStore

edits = load_edited_graphs("mini")[1:]
chains = ChainExplorer(explorer.lm, edits, ResultsStore(Path({store!r})))
ChainPanel(chains, explorer)
"""


def test_panels_answer_clicks_in_jupyterlab(lab, tmp_path):
    from selenium.common.exceptions import ElementClickInterceptedException
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import Select, WebDriverWait

    def find(scope, css):
        return scope.find_element(By.CSS_SELECTOR, css)

    def click(element):
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        ready = WebDriverWait(browser, 30, ignored_exceptions=[ElementClickInterceptedException])
        ready.until(lambda _: element.click() is None)

    cells = MODEL.format(folder=str(Path(__file__).parent)), EDIT_PANEL
    browser = lab(*cells, CHAIN_PANEL.format(store=str(tmp_path / "store")))
    wait = WebDriverWait(browser, PATIENCE)
    wait.until(lambda b: len(b.find_elements(By.CSS_SELECTOR, ".explorer-panel")) == 2)
    edit, chain = browser.find_elements(By.CSS_SELECTOR, ".explorer-panel")
    wait.until(lambda _: chain.find_elements(By.CSS_SELECTOR, "button"))  # drawn after the panel

    def shown(_):
        fields = edit.find_elements(By.CSS_SELECTOR, ".widget-text input")
        return next((field for field in fields if field.is_displayed()), None)

    answer = wait.until(shown)
    answer.clear()
    answer.send_keys("Atlantis\t")
    click(find(edit, "input[type=checkbox]"))
    click(find(edit, "button.mod-primary"))
    wait.until(lambda _: "FT-L+APP: " in edit.text)
    assert "AFF_hard" in edit.text
    assert "Generated after the edit" in edit.text
    picture = find(edit, "img")
    wait.until(lambda b: b.execute_script("return arguments[0].naturalWidth", picture) > 300)

    click(find(chain, "button.mod-primary"))
    wait.until(lambda _: "of 4 chains deducible before" in chain.text)
    chains = Select(chain.find_elements(By.CSS_SELECTOR, "select")[-1])
    assert chains.options[0].text == "all 4 of them"
    chains.select_by_index(4)
    wait.until(lambda _: "The capital of France is" in chain.text)
