"""The guide's worked examples run as they stand, in order, and its links lead somewhere."""

from __future__ import annotations

import re

import pytest
from matplotlib import pyplot as plt

from helpers.models.architectures import ARCHITECTURES
from helpers.paths import REPOSITORY
from helpers.results import figure

GUIDE = (REPOSITORY / "CONTRIBUTING.md").read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.M | re.S)


def test_every_addition_is_worked_out():
    sections = dict(re.findall(r"^## (Add an? [\w ]+)\n(.*?)(?=^## |\Z)", GUIDE, re.M | re.S))
    assert set(sections) == {
        "Add a model",
        "Add an editor",
        "Add a locator",
        "Add a figure",
        "Add a data set",
        "Add a metric",
    }
    assert all("```python" in text and "assert" in text for text in sections.values())


def test_worked_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    figure.published_figures()  # whatever registers now stays; what the guide registers goes
    monkeypatch.setattr(figure, "_REGISTRY", dict(figure._REGISTRY))
    before = dict(ARCHITECTURES)
    namespace = {"__name__": "__main__"}
    try:
        for block in BLOCKS:
            exec(compile(block, "CONTRIBUTING.md", "exec", dont_inherit=True), namespace)
    finally:
        plt.close("all")
        ARCHITECTURES.clear()
        ARCHITECTURES.update(before)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", (REPOSITORY / page).read_text("utf-8"))
    assert targets
    assert [target for target in targets if not (REPOSITORY / target).exists()] == []
