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


def test_findings_are_on_the_first_screen(browser, address):
    show(browser, SCREEN, f"{address}/index.html")
    ends = "return document.querySelector('#what-was-found ul').getBoundingClientRect().bottom"
    assert browser.execute_script(ends) <= SCREEN[1]
    show(browser, TELEPHONE, f"{address}/index.html")
    first = "return document.querySelector('#what-was-found li').getBoundingClientRect().bottom"
    assert browser.execute_script(first) <= TELEPHONE[1]


def test_figures_keep_their_size_on_a_telephone_and_scroll(browser, address):
    show(browser, TELEPHONE, f"{address}/notebooks/07_explorer.html")
    shrunk = """return [...document.querySelectorAll('.cell_output img')]
        .filter(i => i.getBoundingClientRect().width < i.naturalWidth).length"""
    boxes = """return [...document.querySelectorAll('.cell_output')].filter(b => b.querySelector('img'))
        .map(b => [b.scrollWidth > b.clientWidth, getComputedStyle(b).overflowX])"""
    assert browser.execute_script(shrunk) == 0
    found = browser.execute_script(boxes)
    assert len(found) == 4
    assert all(box == [True, "auto"] for box in found)


def test_a_click_on_a_title_sorts_a_table(browser, address):
    show(browser, SCREEN, f"{address}/results.html")
    column = """return [...document.querySelector('.table-scroll tbody').rows]
        .map(row => parseFloat(row.cells[2].textContent))"""
    click = "document.querySelector('.table-scroll thead tr').cells[2].click()"
    before = browser.execute_script(column)
    browser.execute_script(click)
    assert browser.execute_script(column) == sorted(before) != before
    browser.execute_script(click)
    assert browser.execute_script(column) == sorted(before, reverse=True)


def test_formulas_are_drawn(browser, address):
    show(browser, SCREEN, f"{address}/metrics.html")
    height = """return Math.min(...[...document.querySelectorAll('article math')]
        .map(formula => formula.getBoundingClientRect().height))"""
    assert browser.execute_script(height) > 5
