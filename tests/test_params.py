"""Params files are checked against the notebook's own parameter cell; runs leave a row."""

from __future__ import annotations

import json

import nbformat
import papermill
import pytest
import yaml

from helpers import UserError, execute, params
from helpers.execute import RunError
from helpers.params import defaults_of, notebook_of, read_params
from helpers.paths import NOTEBOOKS, PARAMS

CELL = """model: str = "smollm2-135m"  # model name
rate: float = 0.5  # learning rate
layers: list[int] = [4, 5]  # edited blocks
limit: "int or None" = None  # records, None for all"""


@pytest.fixture
def notebooks(tmp_path, monkeypatch):
    """A notebooks folder with one notebook, and a params folder next to it."""
    folder = tmp_path / "notebooks"
    folder.mkdir()
    cell = nbformat.v4.new_code_cell(CELL, metadata={"tags": ["parameters"]})
    body = nbformat.v4.new_code_cell(
        "import os\nprint(rate * 2)\nassert rate < 10, 'rate too high'\nos.environ['HELPERS_FIGURES']"
    )
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = nbformat.v4.new_notebook(cells=[cell, body], metadata=kernel)
    nbformat.write(notebook, folder / "07_try.ipynb")
    monkeypatch.setattr(params, "NOTEBOOKS", folder)
    monkeypatch.setattr(execute, "REPOSITORY", tmp_path)
    return tmp_path


def write(folder, text, name="07_try.yaml"):
    path = folder / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(text)
    return path


def run(file, notebooks):
    return execute.execute(execute.checked_plan(file, folder=notebooks / "runs"))


def test_the_cell_is_the_definition(notebooks):
    found = defaults_of(notebooks / "notebooks" / "07_try.ipynb")
    assert found == {"model": "smollm2-135m", "rate": 0.5, "layers": [4, 5], "limit": None}


def test_values_are_converted_and_defaults_filled(notebooks):
    values = read_params(write(notebooks, "rate: 1e-3\nlimit: 3"))
    assert values == {"model": "smollm2-135m", "rate": 1e-3, "layers": [4, 5], "limit": 3}


def test_folder_names_the_notebook_too(notebooks):
    path = write(notebooks, "rate: 2", "params/paper/07_try/llama.yaml")
    assert notebook_of(path).stem == "07_try"
    with pytest.raises(UserError, match="named after a notebook"):
        notebook_of(write(notebooks, "rate: 2", "elsewhere.yaml"))
    with pytest.raises(UserError, match="no params file"):
        notebook_of(notebooks / "missing.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rat: 1", "no parameter 'rat'; there are model, rate"),
        ("rate: fast", "rate: .*'fast'"),
        ("rate: true", "rate: .*number, not True"),
        ("layers: 4", "layers"),
        ("layers: [4, yes]", "layers.*valid integer"),
        ("1: 2", "flat mapping"),
        ("rate: [1", "not valid YAML"),
        ("rate: 12:30", "rate: .*'12:30'"),
        ("layers: [1:20]", "layers.*'1:20'"),
        ("layers: [010]", "layers.*'010'"),
        ("- rate", "flat mapping"),
    ],
)
def test_mistakes_are_named(notebooks, text, message):
    with pytest.raises(UserError, match=message):
        read_params(write(notebooks, text))


@pytest.mark.parametrize("notebook", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda p: p.stem)
def test_papermill_knows_every_parameter_and_its_type(notebook):
    inferred = papermill.inspect_notebook(str(notebook))
    assert list(inferred) == list(defaults_of(notebook))
    assert {each["inferred_type_name"] for each in inferred.values()} <= set(params._TYPES)


@pytest.mark.parametrize("misspelt", [{}, {"recordz": 3}])
def test_papermill_warns_of_a_misspelt_parameter_only(tmp_path, caplog, misspelt):
    quick = yaml.safe_load((PARAMS / "quick" / "03_editing_runs.yaml").read_text("utf-8"))
    papermill.execute_notebook(
        NOTEBOOKS / "03_editing_runs.ipynb",
        tmp_path / "out.ipynb",
        parameters={**quick, **misspelt},
        prepare_only=True,
        kernel_name="python3",
    )
    warned = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert warned == [f"Passed unknown parameter: {name}" for name in misspelt]


def test_a_run_leaves_its_notebook_and_how_it_ended(notebooks, caplog):
    row = run(write(notebooks, "rate: 3\nlimit: 2"), notebooks)
    assert row.status == "done"
    assert [record.message for record in caplog.records if record.name == "papermill"] == []
    (path,) = (notebooks / "runs").rglob("notebook.ipynb")
    output = nbformat.read(path, as_version=4)
    assert output.cells[-1].outputs[0].text == "6.0\n"
    figures = output.cells[-1].outputs[1].data["text/plain"]
    assert figures == repr(str(path.parent / "figures"))
    with pytest.raises(RunError, match="rate too high"):
        run(write(notebooks, "rate: 30"), notebooks)
    rows = [json.loads(path.read_text()) for path in (notebooks / "runs").rglob("run.json")]
    assert sorted(row["status"] for row in rows) == ["done", "failed"]
