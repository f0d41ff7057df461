"""What names nothing is refused before a model is loaded; every parameter has one check."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers import UserError, execute
from helpers.execute import run
from helpers.params import WRITTEN_FOLDERS, notebook_parameters, read_params
from helpers.paths import NOTEBOOKS, PARAMS
from helpers.values import ALONE, TOGETHER, NotMadeError, wrong_values

PRELIMINARIES, CONSTRUCTION, RUNS = "01_preliminaries", "02_peak_construction", "03_editing_runs"
ABLATIONS, KLOB, THINKEDIT = "04_app_ablations", "05_klob_localisation", "06_thinkedit_case_study"
EXPLORER = "07_explorer"
ALL = (PRELIMINARIES, CONSTRUCTION, RUNS, ABLATIONS, KLOB, THINKEDIT, EXPLORER)
EDITING = (PRELIMINARIES, RUNS, ABLATIONS, THINKEDIT, EXPLORER)
NAN, INFINITY = math.nan, math.inf

# (notebooks, values that name nothing)
NONSENSE: list[tuple[tuple[str, ...], dict[str, Any]]] = [
    (ALL, {"model": "nosuch"}),
    (ALL, {"model": "/no/such/folder"}),
    (ALL, {"model": "shape:nosuch"}),
    (ALL, {"dtype": "int32"}),
    (ALL, {"device": "meta"}),
    (ALL, {"seed": -1}),
    (ALL, {"seed": NAN}),
    (ALL, {"nosuch": 1}),
    (EDITING, {"preset": "nosuch"}),
    (EDITING, {"corpus": "nosuch"}),
    (EDITING, {"corpus": "self-0x128"}),
    ((PRELIMINARIES, RUNS, ABLATIONS, EXPLORER), {"dataset": "nosuch"}),
    ((PRELIMINARIES, RUNS, ABLATIONS, EXPLORER), {"dataset": "peak-mini-cf[9000:9001]"}),
    ((PRELIMINARIES, THINKEDIT, EXPLORER), {"case_id": -1}),
    ((RUNS, ABLATIONS), {"records": 0}),
    ((RUNS, ABLATIONS), {"records": INFINITY}),
    ((RUNS, ABLATIONS), {"results": "../elsewhere"}),
    ((RUNS, ABLATIONS), {"published": ["nosuch", "smollm2-135m"]}),
    ((RUNS,), {"methods": []}),
    ((RUNS,), {"methods": ["rome+nosuch"]}),
    ((RUNS,), {"methods": ["kn+app"]}),
    ((ABLATIONS,), {"editors": ["nosuch"]}),
    ((ABLATIONS,), {"editors": []}),
    ((ABLATIONS,), {"samples": 10**12}),
    ((CONSTRUCTION,), {"source": "httpfoo"}),
    ((ABLATIONS,), {"fairer": ["nosuch"]}),
    ((ABLATIONS,), {"others": ["nosuch"]}),
    ((ABLATIONS,), {"said": ["nosuch"]}),
    ((ABLATIONS,), {"sequences": ["nosuch"]}),
    ((ABLATIONS,), {"samples": 0}),
    ((ABLATIONS,), {"neighbours": [-1]}),
    ((ABLATIONS,), {"factors": [NAN]}),
    ((ABLATIONS,), {"margins": [NAN]}),
    ((ABLATIONS,), {"checkpoints": [0]}),
    ((CONSTRUCTION,), {"source": "nosuch"}),
    ((CONSTRUCTION,), {"relations": ["P0"]}),
    ((CONSTRUCTION,), {"example_subject": "Nosuch"}),
    ((CONSTRUCTION,), {"example_relation": "P0"}),
    ((CONSTRUCTION,), {"most_rows": 0}),
    ((CONSTRUCTION,), {"least_correct": 30}),
    ((CONSTRUCTION,), {"most_correct": -1}),
    ((CONSTRUCTION,), {"least_hard": 16}),
    ((CONSTRUCTION,), {"least_locality": 7}),
    ((CONSTRUCTION,), {"random_type": "nosuch"}),
    ((CONSTRUCTION,), {"link_steps": 3}),
    ((CONSTRUCTION,), {"per_relation": 0}),
    ((CONSTRUCTION,), {"cutoff": "soon"}),
    ((CONSTRUCTION,), {"until": "2026-13"}),
    ((CONSTRUCTION,), {"temporal_least_hard": 16}),
    ((CONSTRUCTION,), {"temporal_per_relation": 0}),
    ((CONSTRUCTION,), {"rule": "nosuch"}),
    ((CONSTRUCTION,), {"hard_share": NAN}),
    ((CONSTRUCTION,), {"threshold": NAN}),
    ((CONSTRUCTION,), {"least_known": -1}),
    ((CONSTRUCTION,), {"output": "/tmp"}),
    ((KLOB,), {"source": "nosuch"}),
    ((KLOB,), {"fact": 9999}),
    ((KLOB,), {"chain": -1}),
    ((KLOB,), {"examples": 0}),
    ((KLOB,), {"share": NAN}),
    ((KLOB,), {"share": 0.0}),
    ((KLOB,), {"published": ["nosuch"]}),
    ((KLOB,), {"stored": "notebooks"}),
    ((KLOB,), {"locators": ["nosuch"]}),
    ((KLOB,), {"layers_only": ["nosuch"]}),
    ((KLOB,), {"counts": [-1, 1, 1]}),
    ((KLOB,), {"counts": [1]}),
    ((KLOB,), {"counts": [1, 99999, 1]}),
    ((KLOB,), {"examples": 99999}),
    ((KLOB,), {"edited_facts": -1}),
    ((THINKEDIT,), {"method": "nosuch"}),
    ((THINKEDIT, EXPLORER), {"layout": "nosuch"}),
    ((THINKEDIT,), {"samples": 0}),
    ((THINKEDIT,), {"published": ["nosuch"]}),
    ((THINKEDIT,), {"mode": "deep"}),
    ((THINKEDIT,), {"benchmark": "nosuch"}),
    ((THINKEDIT,), {"methods": ["nosuch"]}),
    ((THINKEDIT,), {"modes": ["parallel"]}),
    ((THINKEDIT,), {"modes": []}),
    ((THINKEDIT,), {"estimators": []}),
    ((THINKEDIT,), {"estimators": ["guess"]}),
    ((THINKEDIT,), {"temperature": NAN}),
    ((THINKEDIT,), {"max_new_tokens": 0}),
    ((EXPLORER,), {"editor": "nosuch"}),
    ((EXPLORER,), {"editor": "kn", "app": True}),
    ((EXPLORER,), {"edit": 999}),
]
CASES = [(notebooks[0], values) for notebooks, values in NONSENSE]


def written(folder: Path, notebook: str, values: dict[str, Any]) -> Path:
    """A params file: the quick profile with some values replaced."""
    quick = yaml.safe_load((PARAMS / "quick" / f"{notebook}.yaml").read_text("utf-8"))
    path = folder / f"{notebook}.yaml"
    path.write_text(yaml.safe_dump(quick | values), "utf-8")
    return path


@pytest.mark.parametrize(("notebook", "values"), CASES, ids=[f"{n[:2]}-{v}" for n, v in CASES])
def test_nonsense_is_refused_before_a_model_is_loaded(tmp_path, monkeypatch, notebook, values):
    monkeypatch.setenv("HELPERS_DATA", str(tmp_path))  # no official data: nothing is left to chance
    monkeypatch.setattr(execute, "_recorded", lambda *_: pytest.fail("the notebook was started"))
    path = written(tmp_path, notebook, values)
    with pytest.raises(UserError, match=rf"{notebook}\.yaml: "):
        run(path, folder=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_every_parameter_has_its_check_and_no_other_has():
    """Folders are checked with the types, and of a truth value the type says all."""
    cells = [notebook_parameters(path) for path in NOTEBOOKS.glob("*.ipynb")]
    names = {p.name for cell in cells for p in cell if p.type != "bool"}
    assert ALONE.keys() | TOGETHER.keys() == names - set(WRITTEN_FOLDERS)


@pytest.mark.parametrize("notebook", ALL)
def test_the_quick_profiles_pass(notebook):
    assert wrong_values(read_params(PARAMS / "quick" / f"{notebook}.yaml")) == []


def test_tables_that_are_still_to_be_made_are_told_apart():
    """A published run may name them; a notebook that draws them may not be started."""
    params = read_params(PARAMS / "paper" / ABLATIONS / "llama2-7b_peak-cf.yaml")
    (error,) = [e for e in wrong_values(params) if isinstance(e, NotMadeError)]
    assert "python -m helpers publish" in str(error)


def test_a_device_that_is_not_here_is_refused_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    file = tmp_path / f"{RUNS}.yaml"
    file.write_text("device: cuda\n")
    with pytest.raises(UserError, match=rf"{file.name}: device 'cuda'.*sees no GPU"):
        execute.checked_plan(file)
