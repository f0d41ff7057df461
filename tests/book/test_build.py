"""The reading site: what goes into it, and that it builds whole, offline and without a warning."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from helpers.paths import NOTEBOOKS, REPOSITORY

BOOK = REPOSITORY / "book"


class Page(HTMLParser):
    """The addresses a page refers to, and the anchors it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        loaded = found.get("href") if tag == "link" else found.get("src")
        if loaded and not loaded.startswith("data:"):
            self.loads.append(loaded)


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html")}


def test_every_part_is_there(site):
    for notebook in NOTEBOOKS.glob("*.ipynb"):
        assert (site / "notebooks" / f"{notebook.stem}.html").exists()
    for name in (
        "index",
        "results",
        "metrics",
        "explorer",
        "guides/reading",
        "api/index",
        "api/peak",
        "api/editing",
    ):
        assert (site / f"{name}.html").exists()


def test_links_lead_somewhere(site, pages):
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or link == "#":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            there = target in pages if target.suffix == ".html" else target.exists()
            anchor = unquote(parts.fragment)
            if not there or (anchor and target in pages and anchor not in pages[target].anchors):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []


def test_figures_scripts_and_styles_come_with_the_site(site, pages):
    missing = []
    for path, page in pages.items():
        for address in page.loads:
            parts = urlsplit(address)
            if parts.netloc or not (path.parent / unquote(parts.path)).exists():
                missing.append(f"{path.relative_to(site)}: {address}")
    assert missing == []


def test_formulas_are_mathml(site):
    text = (site / "metrics.html").read_text("utf-8")
    source = (BOOK / "pages" / "metrics.md").read_text("utf-8")
    assert text.count('display="block"') == source.count("```{math}")
    assert "\\frac" not in text


def test_overview_shows_a_finding_for_each_published_notebook(site):
    text = (site / "index.html").read_text("utf-8")
    published = {path.stem for path in NOTEBOOKS.glob("*.ipynb")}
    described = {path.stem for path in (BOOK / "findings").glob("*.md")}
    linked = set(re.findall(r'→ <a [^>]*href="notebooks/(\w+)\.html"', text))
    assert linked == published & described


def test_a_finding_leads_to_its_own_notebook():
    findings = sorted((BOOK / "findings").glob("*.md"))
    assert findings
    for path in findings:
        assert f"(notebooks/{path.stem}.ipynb)" in path.read_text("utf-8")
