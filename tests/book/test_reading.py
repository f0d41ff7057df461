"""The site in a real browser: nothing fails to load, and a telephone can show it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

SCREEN = (1280, 900)
TELEPHONE = (390, 844)
# What is wrong with an open page: pictures without content, a page wider than its screen, no title
# (but the search page writes its own), small print (generated lists have no paragraph).
FAULTS = """
const faults = [...document.images].filter(i => !i.naturalWidth).map(i => `broken: ${i.src}`);
const width = document.documentElement.scrollWidth;
if (width > innerWidth) faults.push(`${width} pixels wide`);
if (!document.querySelector('h1, #search-results')) faults.push('no title');
const text = document.querySelector('article p');
if (text && parseFloat(getComputedStyle(text).fontSize) < 14) faults.push('small print');
return faults;
"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def address(site) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def show(browser: Any, size: tuple[int, int], page: str) -> None:
    """Open a page on a screen of this size."""
    metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size[0] < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(page)


def faults(browser: Any, site: Path, address: str, path: Path) -> list[str]:
    """What is wrong with one page on a telephone, its console's messages included."""
    browser.get_log("browser")  # what earlier pages said
    name = path.relative_to(site).as_posix()
    show(browser, TELEPHONE, f"{address}/{name}")
    if folder := os.environ.get("HELPERS_SCREENSHOTS"):
        browser.save_screenshot(f"{folder}/{name.replace('/', '_')}.png")
    said = [entry["message"] for entry in browser.get_log("browser")]
    said = [message for message in said if "favicon" not in message]
    return [f"{name}: {fault}" for fault in [*said, *browser.execute_script(FAULTS)]]


def test_every_page_loads_whole_and_fits_a_telephone(browser, site, address):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    assert [fault for page in pages for fault in faults(browser, site, address, page)] == []


def test_findings_begin_on_the_first_screen(browser, address):
    for size in (SCREEN, TELEPHONE):
        show(browser, size, f"{address}/index.html")
        top = "return document.querySelector('#what-we-find li').getBoundingClientRect().bottom"
        assert browser.execute_script(top) <= size[1]


@pytest.mark.parametrize("page", ["index", "notebooks/01_preliminaries"])
def test_figures_fit_a_telephone_and_a_tap_enlarges_one(browser, address, page):
    show(browser, TELEPHONE, f"{address}/{page}.html")
    widths = """return [...document.querySelectorAll('article img')]
        .map(i => i.getBoundingClientRect().right)"""
    found = browser.execute_script(widths)
    assert found
    assert max(found) <= TELEPHONE[0]
    tap = "document.querySelector('article img').click()"
    browser.execute_script(tap)
    assert browser.execute_script(widths)[0] > TELEPHONE[0]
    assert browser.execute_script("return document.documentElement.scrollWidth") == TELEPHONE[0]
    browser.execute_script(tap)
    assert browser.execute_script(widths) == found


# Tables that are cut off: those out of their box without a way to scroll there, whose first column
# leaves with the rest, or in print too small to read. On a wide screen no scrolling should be needed.
CLIPPED = """
for (const folded of document.querySelectorAll('details')) folded.open = true;
const found = [];
for (const box of document.querySelectorAll('.ke-table')) {
  const cell = box.querySelector('tbody tr > :first-child');
  const fault = (words) => found.push(`${words}: ${box.innerText.slice(0, 60)}`);
  const out = box.scrollWidth > box.clientWidth + 1;
  if (out && getComputedStyle(box).overflowX !== 'auto') fault('no scrolling');
  if (out && innerWidth > 1000) fault(`${box.scrollWidth} in ${box.clientWidth}`);
  if (box.getBoundingClientRect().right > innerWidth) fault('off the screen');
  if (parseFloat(getComputedStyle(cell).fontSize) < 11) fault(getComputedStyle(cell).fontSize);
  box.scrollLeft = 1e4;
  const left = box.getBoundingClientRect().left;
  if (cell.getBoundingClientRect().left < left - 1) fault('first column gone');
  box.scrollLeft = 0;
}
return [document.querySelectorAll('.ke-table').length, found];
"""


@pytest.mark.parametrize("size", [SCREEN, TELEPHONE], ids=["1280", "390"])
def test_no_table_is_cut_off(browser, site, address, size):
    pages = ["results", "explorer", *(f"notebooks/{p.stem}" for p in site.glob("notebooks/*.html"))]
    tables, clipped = 0, []
    for page in pages:
        show(browser, size, f"{address}/{page}.html")
        number, found = browser.execute_script(CLIPPED)
        tables += number
        clipped += [f"{page}: {fault}" for fault in found]
    assert tables > 30
    assert clipped == []


def test_code_is_folded_and_opens(browser, address):
    show(browser, SCREEN, f"{address}/notebooks/01_preliminaries.html")
    code = "return [...document.querySelectorAll('details.hide')].map(d => d.open)"
    folded = browser.execute_script(code)
    assert len(folded) > 3
    assert not any(folded)
    browser.execute_script("document.querySelector('details.hide summary').click()")
    assert browser.execute_script(code)[0]


def test_the_search_finds_a_measure(browser, address):
    from selenium.webdriver.support.ui import WebDriverWait

    show(browser, SCREEN, f"{address}/search.html?q=forgetting")
    links = "return document.querySelectorAll('#search-results li a').length"
    WebDriverWait(browser, 60).until(lambda b: b.execute_script(links))


def test_the_explorer_shows_a_fact_under_each_editor_from_a_folder_of_files(browser, site):
    from selenium.webdriver.support.ui import WebDriverWait

    show(browser, SCREEN, (site / "explorer.html").as_uri())
    answers = (
        "return [...document.querySelectorAll('#explorer-answers tbody tr')].map(r => r.innerText)"
    )
    rows = WebDriverWait(browser, 60).until(lambda b: b.execute_script(answers))
    choose = """const [name, index] = arguments;
        const select = document.getElementById('explorer')[name];
        select.selectedIndex = index;
        select.dispatchEvent(new Event('change'));
        return select.value"""
    first = browser.execute_script("return document.getElementById('explorer').method.value")
    other = next(i for i in (0, 1) if browser.execute_script(choose, "method", i) != first)
    browser.execute_script(choose, "method", other)
    changed = browser.execute_script(answers)
    assert len(changed) == len(rows)
    assert changed != rows
    browser.execute_script(choose, "fact", 3)
    assert browser.execute_script(answers) != changed
    runs = browser.execute_script("return document.getElementById('explorer').run.options.length")
    browser.execute_script(choose, "run", runs - 1)
    chosen = "return document.getElementById('explorer').fact.value"
    WebDriverWait(browser, 60).until(lambda b: "record" in b.execute_script(chosen))


def test_a_click_on_a_title_sorts_a_table(browser, address):
    show(browser, SCREEN, f"{address}/results.html")
    column = """return [...document.querySelector('.ke-table tbody').rows]
        .map(row => parseFloat(row.cells[2].textContent))"""
    click = "document.querySelector('.ke-table thead tr').cells[2].click()"
    before = browser.execute_script(column)
    numbers, missing = [n for n in before if n is not None], [n for n in before if n is None]
    browser.execute_script(click)
    assert browser.execute_script(column) == sorted(numbers) + missing != before
    browser.execute_script(click)
    assert browser.execute_script(column) == sorted(numbers, reverse=True) + missing


def test_formulas_are_drawn(browser, address):
    show(browser, SCREEN, f"{address}/metrics.html")
    height = """return Math.min(...[...document.querySelectorAll('article math')]
        .map(formula => formula.getBoundingClientRect().height))"""
    assert browser.execute_script(height) > 5
