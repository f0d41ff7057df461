"""The reading site builds whole, offline and without a warning; a browser shows it on a telephone."""

from __future__ import annotations

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from helpers.paths import NOTEBOOKS, REPOSITORY

pytestmark = pytest.mark.slow

PARTS = ("index", "results", "metrics", "explorer", "guides/reading", "api/index", "api/peak")
SCREEN = (1280, 900)
TELEPHONE = (390, 844)
# What is wrong with an open page: pictures without content, a page wider than its screen, tables that
# are cut off without a way to scroll, or whose first column leaves with the rest.
FAULTS = """
const faults = [...document.images].filter(i => !i.naturalWidth).map(i => `broken: ${i.src}`);
const width = document.documentElement.scrollWidth;
if (width > innerWidth) faults.push(`${width} pixels wide`);
for (const folded of document.querySelectorAll('details')) folded.open = true;
for (const box of document.querySelectorAll('.ke-table')) {
  const cell = box.querySelector('tbody tr > :first-child');
  const fault = (words) => faults.push(`${words}: ${box.innerText.slice(0, 60)}`);
  const out = box.scrollWidth > box.clientWidth + 1;
  if (out && getComputedStyle(box).overflowX !== 'auto') fault('no scrolling');
  box.scrollLeft = 1e4;
  const left = box.getBoundingClientRect().left;
  if (cell.getBoundingClientRect().left < left - 1) fault('first column gone');
}
return faults;
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    for name in ("sphinx", "myst_nb", "furo"):
        pytest.importorskip(name, reason="needs the extra 'book'")
    if built := os.environ.get("HELPERS_SITE"):  # one that is there already saves minutes
        return Path(built)
    folder = tmp_path_factory.mktemp("book")
    done = subprocess.run(
        [sys.executable, REPOSITORY / "book" / "build.py", folder], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stderr == ""
    return folder / "html"


class Page(HTMLParser):
    """The addresses a page refers to, and the anchors it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        address = found.get("href") or found.get("src") or "#"
        outside = tag == "a" and urlsplit(address).scheme
        if address != "#" and not outside and not address.startswith("data:"):
            self.addresses.append(address)


def test_links_figures_scripts_and_styles_lead_somewhere(site):
    pages = {path: Page(path) for path in site.rglob("*.html")}
    for name in (*PARTS, *(f"notebooks/{path.stem}" for path in NOTEBOOKS.glob("*.ipynb"))):
        assert site / f"{name}.html" in pages
    broken = []
    for path, page in pages.items():
        for address in page.addresses:
            parts = urlsplit(address)
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            there = not parts.scheme and not parts.netloc and target.exists()
            if not there or (anchor and target in pages and anchor not in pages[target].anchors):
                broken.append(f"{path.relative_to(site)}: {address}")
    assert broken == []


def show(browser: Any, size: tuple[int, int], page: Path) -> None:
    """Open a page from the disk on a screen of this size."""
    metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size[0] < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(page.as_uri())


def test_every_page_loads_whole_and_fits_a_telephone(browser, site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    faults = []
    for page in pages:
        browser.get_log("browser")  # what earlier pages reported
        show(browser, TELEPHONE, page)
        found = [entry["message"] for entry in browser.get_log("browser")]
        faults += [f"{page.name}: {f}" for f in [*found, *browser.execute_script(FAULTS)]]
    assert faults == []


def test_the_explorer_shows_a_fact_under_each_editor_from_a_folder_of_files(browser, site):
    from selenium.webdriver.support.ui import WebDriverWait

    show(browser, SCREEN, site / "explorer.html")
    answers = (
        "return [...document.querySelectorAll('#explorer-answers tbody tr')].map(r => r.innerText)"
    )
    rows = WebDriverWait(browser, 60).until(lambda b: b.execute_script(answers))
    choose = """const [name, index] = arguments;
        const select = document.getElementById('explorer')[name];
        select.selectedIndex = index;
        select.dispatchEvent(new Event('change'))"""
    first = browser.execute_script(
        "return document.getElementById('explorer').method.selectedIndex"
    )
    browser.execute_script(choose, "method", 1 if first == 0 else 0)
    changed = browser.execute_script(answers)
    assert len(changed) == len(rows)
    assert changed != rows
    browser.execute_script(choose, "fact", 3)
    assert browser.execute_script(answers) != changed
