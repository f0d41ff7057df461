"""The guide's worked examples run as they stand, in order, and its links lead somewhere."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest
import torch
from matplotlib import pyplot as plt

from helpers.editing.weight_edit import apply
from helpers.models.architectures import ARCHITECTURES
from helpers.paths import REPOSITORY
from helpers.results import figure
from helpers.scoring.answers import Question, score_answers
from tests.editing.conftest import REQUESTS

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
        "Add a benchmark",
        "Add a metric",
    }
    assert all("```python" in text and "assert" in text for text in sections.values())


def values_made(block: str) -> set[str]:
    """The names that a block binds itself, without those it imports."""
    names = set()
    for node in ast.parse(block).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                names.add(part.id)
    return names


def test_worked_examples_run(tmp_path, monkeypatch):
    """Each as a module of its own: it imports what it uses, and gets the values of those before it."""
    monkeypatch.chdir(tmp_path)
    figure.published_figures()  # whatever registers now stays; what the guide registers goes
    monkeypatch.setattr(figure, "_REGISTRY", dict(figure._REGISTRY))
    before = dict(ARCHITECTURES)
    values: dict[str, object] = {}
    try:
        for block in BLOCKS:
            module = {"__name__": "__main__", **values}
            exec(compile(block, "CONTRIBUTING.md", "exec", dont_inherit=True), module)
            values |= {name: module[name] for name in values_made(block) if name in module}
    finally:
        plt.close("all")
        ARCHITECTURES.clear()
        ARCHITECTURES.update(before)
    check_contract(values["Direct"], values["DirectHyperparameters"], values["lm"])


def check_contract(editor_class, hyperparameters, lm):
    """What every editor promises: batches equal one by one, and under an edit is as written."""
    editor = editor_class(lm=lm, hyperparameters=hyperparameters(layers=(1,)))
    together = editor.edit(REQUESTS)
    for request, edit in zip(REQUESTS, together, strict=True):
        (alone,) = editor.edit([request])
        (name,) = edit
        torch.testing.assert_close(edit[name].dense(), alone[name].dense(), atol=1e-5, rtol=1e-4)
        question = [Question(request.text, (request.target,))]
        under = score_answers(lm, question, [edit], [0])["sum"][0]
        with apply(lm, edit):
            assert score_answers(lm, question)["sum"][0] == pytest.approx(under, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["ruff", "mypy"])
def test_the_editors_module_passes_the_checks_of_the_suite(tool, tmp_path):
    (block,) = (block for block in BLOCKS if "class Direct(Editor)" in block)
    path = tmp_path / "direct.py"
    path.write_text(f'"""An editor of the guide."""\n\n{block}', "utf-8")
    arguments = {
        "ruff": ["check", "--no-cache", "--config", str(REPOSITORY / "pyproject.toml")],
        "mypy": ["--config-file", str(REPOSITORY / "pyproject.toml"), "--follow-imports=silent"],
    }
    command = [sys.executable, "-m", tool, *arguments[tool], str(path)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", (REPOSITORY / page).read_text("utf-8"))
    assert targets
    assert [target for target in targets if not (REPOSITORY / target).exists()] == []
