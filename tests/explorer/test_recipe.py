"""The README's recipe for working in the notebooks shows their figures, in a real browser."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess

import nbformat
import pytest

from helpers.paths import FIGURES, NOTEBOOKS, REPOSITORY
from tests.conftest import PATIENCE, start_lab

ALL = sorted(NOTEBOOKS.glob("*.ipynb"))
_COPY = re.compile(r"`(cp -r notebooks (\w+))`")
_START = re.compile(r"`\.venv/bin/jupyter lab\b([^`]*)`")
_IMAGE = re.compile(r"!\[.*?\]\([^)]*\)|<img\b")  # an interval in the text has brackets of its own
# The width of each image of the markdown cells; null while one of them is loading.
_WIDTHS = """
const images = [...document.querySelectorAll(".jp-MarkdownOutput img")];
return images.every(image => image.complete) ? images.map(image => image.naturalWidth) : null;
"""
_TRACKER = "@jupyterlab/notebook-extension/tracker.jupyterlab-settings"


@pytest.fixture(scope="module")
def recipe() -> tuple[str, str, list[str]]:
    """The README's command that copies the notebooks, the copy's folder, and JupyterLab's arguments."""
    readme = (REPOSITORY / "README.md").read_text("utf-8")
    ((copying, folder),) = _COPY.findall(readme)
    (arguments,) = _START.findall(readme)
    return copying, folder, shlex.split(arguments)


@pytest.fixture
def address(recipe, tmp_path):
    """A JupyterLab started as the recipe says, in a folder with what the repository's root has for it."""
    root, settings = tmp_path / "repository", tmp_path / "jupyterlab_settings_dir" / _TRACKER
    shutil.copytree(NOTEBOOKS, root / "notebooks")
    leave_out = shutil.ignore_patterns("data", "*.svg")
    shutil.copytree(FIGURES, root / "figures", ignore=leave_out)
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"windowingMode": "none"}))  # cells out of sight are shown too
    copying, _, arguments = recipe
    subprocess.run(shlex.split(copying), cwd=root, check=True)
    process, address = start_lab(root, tmp_path, arguments)
    yield address
    # Not terminated: it would wait for ever for a kernel that is just starting. Kernels end with it.
    process.kill()
    process.wait(timeout=60)


@pytest.mark.slow
def test_every_image_of_the_copied_notebooks_is_shown(recipe, address, browser):
    from selenium.webdriver.support.ui import WebDriverWait

    wait = WebDriverWait(browser, PATIENCE)
    for path in ALL:
        cells = nbformat.read(path, as_version=4).cells
        sources = "".join(cell.source for cell in cells if cell.cell_type == "markdown")
        expected = len(_IMAGE.findall(sources))
        assert expected, path.name
        browser.get(f"{address}/doc/tree/{recipe[1]}/{path.name}")
        wait.until(lambda b, n=expected: len(b.execute_script(_WIDTHS) or ()) >= n)
        assert all(width > 0 for width in browser.execute_script(_WIDTHS)), path.name
    browser.get("about:blank")
