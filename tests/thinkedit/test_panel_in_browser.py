"""The curation panel in a real browser: one review by hand, written to the journal."""

from __future__ import annotations

import json
from pathlib import Path

PATIENCE = 180  # seconds; a kernel starts slowly on a busy machine
PANEL = """
import sys

sys.path.insert(0, {folder!r})
from pathlib import Path

from conftest import SCHOOL, WorldModel

from helpers.thinkedit.grow.journal import Journal
from helpers.thinkedit.grow.panel import CurationPanel
from helpers.thinkedit.grow.pipeline import Session, Settings

world = WorldModel()
journal = Journal(Path({journal!r}), model=world.fingerprint, settings={{}})
CurationPanel(Session(SCHOOL, world, journal, settings=Settings(target_chains=4)))
"""


def decisions(path: Path) -> list[dict]:
    records = map(json.loads, path.read_text().splitlines())
    return [record["outcome"] for record in records if record["kind"] == "decision"]


def test_a_review_by_hand_reaches_the_journal(lab, tmp_path):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    journal = tmp_path / "journal.jsonl"
    source = PANEL.format(folder=str(Path(__file__).parent), journal=str(journal))
    browser = lab(source)
    wait = WebDriverWait(browser, PATIENCE)
    panel = wait.until(lambda b: b.find_element(By.CSS_SELECTOR, ".curation-panel"))
    wait.until(lambda _: "Ada lives in Red House." in panel.text)
    assert "Round 1" in panel.text

    first, *_ = panel.find_elements(By.CSS_SELECTOR, "input[type=checkbox]")
    first.click()
    keep = panel.find_element(By.XPATH, ".//button[contains(., 'Keep ticked')]")
    keep.click()
    wait.until(lambda _: decisions(journal))
    (decision, *_) = decisions(journal)
    assert [t["subject"] for t in decision["triplets"]] == ["Red House"]  # no link is offered again
    assert not decision["discard"]

    wait.until(lambda _: "Round 1" not in panel.text)
