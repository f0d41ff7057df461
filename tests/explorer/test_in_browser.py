"""The panels in JupyterLab in a real browser, with a tiny random model: choose, click, see."""

from __future__ import annotations

from pathlib import Path

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

from helpers.thinkedit.knowgic import load_edits
from helpers.explorer.one_edit import ChainExplorer
from helpers.explorer.panels import ChainPanel
from helpers.results.store import ResultsStore

edits = load_edits("mini")[1:]
chains = ChainExplorer(explorer.language_model, edits, ResultsStore(Path({store!r})))
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

    def fields(many):
        """The text fields that are shown, once there are so many."""

        def shown(_):
            found = edit.find_elements(By.CSS_SELECTOR, ".widget-text input")
            found = [field for field in found if field.is_displayed()]
            return found if len(found) == many else None

        return wait.until(shown)

    (answer,) = fields(1)
    answer.clear()
    answer.send_keys("Atlantis\t")
    click(find(edit, "input[type=checkbox]"))
    click(find(edit, "button.mod-primary"))
    wait.until(lambda _: "FT-L+APP: " in edit.text)
    assert "AFF_hard" in edit.text
    assert "Generated after the edit" in edit.text
    picture = find(edit, "img")
    wait.until(lambda b: b.execute_script("return arguments[0].naturalWidth", picture) > 300)

    # A fact of one's own: the old result is dimmed, the fields take its place.
    click(edit.find_element(By.XPATH, ".//button[contains(., 'of my own')]"))
    texts = ("Sudan", "{} shares a border with", "Oman", "Egypt, Chad", "Laos, Peru")
    for field, text in zip(fields(5), texts, strict=True):
        field.clear()
        field.send_keys(text + "\t")
    wait.until(lambda _: edit.find_elements(By.CSS_SELECTOR, "img.explorer-old"))
    assert float(picture.value_of_css_property("opacity")) < 0.5
    click(find(edit, "button.mod-primary"))
    wait.until(lambda _: not edit.find_elements(By.CSS_SELECTOR, ".explorer-old"))
    editors = Select(edit.find_elements(By.CSS_SELECTOR, "select")[-1])

    # An edit that takes long is cancelled; the panel takes the next one.
    editors.select_by_visible_text("memit")
    click(find(edit, "button.mod-primary"))
    wait.until(lambda _: "passes of the model" in edit.text)
    click(edit.find_element(By.XPATH, ".//button[contains(., 'Cancel')]"))
    wait.until(lambda _: "cancelled; nothing was changed" in edit.text)
    assert edit.find_elements(By.CSS_SELECTOR, "img.explorer-old")
    editors.select_by_visible_text("ft-m")
    click(find(edit, "button.mod-primary"))
    wait.until(lambda _: not edit.find_elements(By.CSS_SELECTOR, ".explorer-old"))

    click(find(chain, "button.mod-primary"))
    wait.until(lambda _: "of 4 chains deducible before" in chain.text)
    chains = Select(chain.find_elements(By.CSS_SELECTOR, "select")[-1])
    assert chains.options[0].text == "all 4 of them"
    chains.select_by_index(4)
    wait.until(lambda _: "The capital of France is" in chain.text)
