"""The site in a real browser: nothing fails to load, and a telephone can show it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

PAGES = ("index", "results", "metrics", "notebooks/01_preliminaries", "api/metrics")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def address(site) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.mark.parametrize("page", PAGES)
def test_a_page_loads_whole_and_fits_a_telephone(browser, address, page):
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True},
    )
    browser.get_log("browser")  # what earlier pages said
    browser.get(f"{address}/{page}.html")
    if folder := os.environ.get("HELPERS_SCREENSHOTS"):
        browser.save_screenshot(f"{folder}/{page.replace('/', '_')}.png")
    problems = [entry["message"] for entry in browser.get_log("browser")]
    assert [text for text in problems if "favicon" not in text] == []
    broken = "return [...document.images].filter(i => !i.naturalWidth).map(i => i.src)"
    assert browser.execute_script(broken) == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    assert browser.execute_script("return document.querySelector('h1').innerText")
    size = "return parseFloat(getComputedStyle(document.querySelector('article p')).fontSize)"
    assert browser.execute_script(size) >= 14


def test_formulas_are_drawn(browser, address):
    browser.get(f"{address}/metrics.html")
    height = """return Math.min(...[...document.querySelectorAll('article math')]
        .map(formula => formula.getBoundingClientRect().height))"""
    assert browser.execute_script(height) > 5
