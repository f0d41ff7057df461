"""A hub name with a slash, or a folder's path, becomes one part of every path it is in."""

from __future__ import annotations

from types import SimpleNamespace

import matplotlib.pyplot as plt
import nbformat
import pandas as pd
import pytest

from helpers.editing.presets import model_file
from helpers.paths import NOTEBOOKS, PARAMS, file_name, run_name
from helpers.peak.records import load_peak
from helpers.records import load_yaml
from helpers.results.archive import About, Archive
from helpers.results.style import save_figure
from helpers.sweeps.matrix import Sweep, _combinations
from helpers.thinkedit import stored_scores

NAMES = ["openai-community/gpt2-xl", "/home/someone/my model", "..\\up", "shape:gpt2-xl"]


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_a_file_or_folder_is_one_part(name):
    made = [file_name(name), run_name(name, "peak-cf")]
    made += [stored_scores.run_name(name, layout) for layout in ("2025-06", "my/edits.json")]
    for part in made:
        assert part
        assert not set("/\\: ") & set(part)
        assert not part.startswith(".")


@pytest.mark.parametrize("name", NAMES)
def test_tables_and_figures_are_kept_beside_those_of_other_models(tmp_path, name):
    archive = Archive(tmp_path / "data")
    about = About({"model": name}, {"rome": {"editor": "rome"}}, {})
    folder = archive.put(f"{name}_peak-cf", {"rome": pd.DataFrame({"case_id": [1]})}, about)
    assert folder.parent == archive.root
    assert archive.get(f"{name}_peak-cf").tables["rome"]["case_id"].tolist() == [1]
    figure = plt.figure()
    paths = save_figure(figure, f"03_additivity_{name}", tmp_path / "figures")
    plt.close(figure)
    assert {path.parent for path in paths} == {tmp_path / "figures"}
    assert model_file(name).parent == PARAMS / "models"


@pytest.mark.parametrize("name", NAMES[:1])
def test_a_sweep_names_its_runs_by_one_part(name):
    text = (PARAMS / "sweeps" / "quick.yaml").read_text("utf-8")
    sweep = Sweep(**{**load_yaml(text), "models": [name]})
    made = _combinations(sweep, sweep.params)
    runs = [run.name for each in made for run in (*each.shards, each.table)]
    assert runs
    assert not any("/" in each for each in runs)


@pytest.mark.parametrize("name", NAMES)
def test_notebook_02_keeps_its_records(tmp_path, name):
    cells = nbformat.read(NOTEBOOKS / "02_peak_construction.ipynb", as_version=4).cells
    (saving,) = [cell.source for cell in cells if "save_peak(" in cell.source]
    records = load_peak("peak-mini-cf")
    given = {"REPOSITORY": tmp_path, "output": "made", "source": "packaged"}
    given |= {"filtered": {"PEAK-CF": records}, "packaged": {"PEAK-CF": records}}
    given |= {"load_peak": load_peak, "file_name": file_name}
    given |= {"language_model": SimpleNamespace(name=name)}
    exec(saving, given)
    (path,) = (tmp_path / "made").iterdir()
    assert load_peak(str(path)).records == records.records
