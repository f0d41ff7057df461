"""What names nothing is refused before a model is loaded."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers import UserError, execute
from helpers.params import defaults_of, notebook_of, read_params
from helpers.paths import NOTEBOOKS, PARAMS
from helpers.results.archive import ArchiveError
from helpers.values import PARAMS_CLASSES, NotebookParams, params_of

PRELIMINARIES, CONSTRUCTION, RUNS = "01_preliminaries", "02_peak_construction", "03_editing_runs"
ABLATIONS, KLOB, THINKEDIT = "04_app_ablations", "05_klob_localisation", "06_thinkedit_case_study"
EXPLORER, GENERATED, COMPARISON = "07_explorer", "08_generated_text", "09_editors"
LIFELONG = "10_lifelong"
DOSES = f"paper/{GENERATED}/smollm2-135m_peak-cf_doses.yaml"
ALL = (
    PRELIMINARIES,
    CONSTRUCTION,
    RUNS,
    ABLATIONS,
    KLOB,
    THINKEDIT,
    EXPLORER,
    GENERATED,
    COMPARISON,
    LIFELONG,
)

# Values that name nothing, by a notebook that has them.
NONSENSE: list[tuple[str, dict[str, Any]]] = [
    *((PRELIMINARIES, {"model": name}) for name in ("nosuch", "/no/such/folder", "shape:nosuch")),
    *((PRELIMINARIES, {"dataset": name}) for name in ("nosuch", "peak-mini-cf[9000:9001]")),
    *((PRELIMINARIES, values) for values in ({"dtype": "int32"}, {"device": "meta"}, {"seed": -1})),
    *((PRELIMINARIES, values) for values in ({"device": "auto"}, {"device_map": "auto"})),
    *((RUNS, {"corpus": name}) for name in ("nosuch", "self-0x128")),
    *((PRELIMINARIES, values) for values in ({"nosuch": 1}, {"case_id": -1})),
    *((RUNS, {name: -1}) for name in ("records", "keep")),
    *((RUNS, {"methods": methods}) for methods in ([], ["rome+nosuch"], ["kn+app"])),
    *((RUNS, v) for v in ({"preset": "nosuch"}, {"published": ["nosuch", "smollm2-135m"]})),
    *((ABLATIONS, {"editors": editors}) for editors in ([], ["nosuch"], ["kn"])),
    *((ABLATIONS, {name: ["nosuch"]}) for name in ("fairer", "others", "sequences")),
    *((GENERATED, {name: ["nosuch"]}) for name in ("methods", "scorers", "ability", "published")),
    *((GENERATED, v) for v in ({"methods": []}, {"samples": 0}, {"published": ["llama2-7b"]})),
    *((ABLATIONS, v) for v in ({"others": ["kn"]}, {"published": ["gemma3-270m", "smollm2-135m"]})),
    *((ABLATIONS, {name: [-1]}) for name in ("neighbours", "checkpoints", "factors", "margins")),
    *((ABLATIONS, {name: ["nosuch"]}) for name in ("held_out", "scaled", "unscaled", "leaks")),
    *((ABLATIONS, v) for v in ({"held_out": ["kn"]}, {"undone": ["kn"]}, {"leaks": ["kn"]})),
    *((ABLATIONS, v) for v in ({"scales": [-1]}, {"subjects": 0}, {"keep": -1})),
    *((GENERATED, {"doses": [name]}) for name in ("rome@nosuch=2x", "rome@alpha=2x")),
    *((CONSTRUCTION, {"source": name}) for name in ("nosuch", "httpfoo")),
    *((CONSTRUCTION, v) for v in ({"temporal_most_correct": 3}, {"most_locality": 0})),
    *((CONSTRUCTION, v) for v in ({"random_false": -1}, {"rule": "best"}, {"until": "2021"})),
    *((RUNS, v) for v in ({"rule": "best"}, {"hard_share": 1.5}, {"threshold": -0.1})),
    *((KLOB, v) for v in ({"source": "x"}, {"examples": 0}, {"share": 2.0}, {"counts": [-1]})),
    (KLOB, {"late": 0}),
    *((KLOB, {name: ["nosuch"]}) for name in ("published", "locators")),
    *((KLOB, {"located_edits": 4, **v}) for v in ({"masked": True}, {"locators": ["random"]})),
    *((THINKEDIT, {name: "nosuch"}) for name in ("method", "layout", "benchmark")),
    *((THINKEDIT, {name: n}) for name in ("samples", "max_new_tokens") for n in (0, -1)),
    *((THINKEDIT, {n: v}) for n in ("modes", "estimators") for v in ([], ["guess"])),
    (THINKEDIT, {"temperature": math.nan}),
    *((THINKEDIT, {"known_threshold": share}) for share in (-0.1, 1.1)),
    (THINKEDIT, {"modes": ["sequential 1"]}),
    *((COMPARISON, {"methods": methods}) for methods in ([], ["rome+nosuch"], ["memoir+app"])),
    *((COMPARISON, v) for v in ({"measured": "guess"}, {"records": 0}, {"published": ["nosuch"]})),
    *((COMPARISON, v) for v in ({"dataset": "recalled-nosuch"}, {"preset": "nosuch"})),
    (COMPARISON, {"dataset": "recalled-smollm2-135m", "measured": "text"}),
    *((LIFELONG, v) for v in ({"stream": "nosuch"}, {"checkpoints": [9999]}, {"methods": ["ike"]})),
    *((LIFELONG, v) for v in ({"checkpoints": [3]}, {"published": ["nosuch"]}, {"known": -1})),
    *(
        (EXPLORER, v)
        for v in ({"editor": "kn", "app": True}, {"editor": "ft-m+app"}, {"edit": 999})
    ),
]


@pytest.mark.parametrize(("notebook", "values"), NONSENSE, ids=str)
def test_nonsense_is_refused_before_a_model_is_loaded(tmp_path, monkeypatch, notebook, values):
    monkeypatch.setenv("HELPERS_DATA", str(tmp_path))  # no official data: nothing is left to chance
    monkeypatch.setattr(execute, "_run_cells", lambda *_: pytest.fail("the notebook was started"))
    quick = yaml.safe_load((PARAMS / "quick" / f"{notebook}.yaml").read_text("utf-8"))
    path = tmp_path / f"{notebook}.yaml"
    path.write_text(yaml.safe_dump(quick | values), "utf-8")
    with pytest.raises(UserError, match=rf"{notebook}\.yaml: "):
        execute.execute(execute.checked_plan(path, folder=tmp_path / "runs"))
    assert not (tmp_path / "runs").exists()


def params_in(file: Path) -> NotebookParams:
    return params_of(notebook_of(file), read_params(file))


@pytest.mark.parametrize("file", [*(f"quick/{name}.yaml" for name in ALL), DOSES])
def test_the_quick_profiles_and_doses_alone_pass(file):
    assert params_in(PARAMS / file).wrong_values() == []


def test_every_notebook_has_its_own_class_of_parameters():
    """A parameter whose value must be checked is found in one place, by its notebook's name."""
    assert sorted(PARAMS_CLASSES) == sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))
    for notebook in NOTEBOOKS.glob("*.ipynb"):
        values = defaults_of(notebook)
        params = params_of(notebook, values)
        assert type(params) is not NotebookParams
        assert params.value_checks.keys() - {"corpus"} <= values.keys()  # notebook 02 has none
    assert type(params_of(Path("99_mine.ipynb"), {})) is NotebookParams


def test_tables_that_are_still_to_be_made_are_told_apart():
    """A published run may name them; a notebook that draws them may not be started."""
    params = params_in(PARAMS / "paper" / ABLATIONS / "llama2-7b_peak-cf.yaml")
    (error,) = [e for e in params.wrong_values() if isinstance(e, ArchiveError)]
    assert "python -m helpers publish" in str(error)


def test_a_place_for_results_that_cannot_be_written_is_refused_at_once(tmp_path: Path):
    file = tmp_path / f"{RUNS}.yaml"
    (tmp_path / "taken").write_text("a file, not a folder")
    file.write_text(f"results: {tmp_path / 'taken' / 'results'}\n")
    with pytest.raises(
        UserError, match=rf"{file.name}: .*taken.* cannot be written .*choose another"
    ):
        execute.checked_plan(file)


def test_a_device_that_is_not_here_is_refused_at_once(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    file = tmp_path / f"{RUNS}.yaml"
    file.write_text("device: cuda\n")
    with pytest.raises(UserError, match=rf"{file.name}: device 'cuda'.*sees no GPU"):
        execute.checked_plan(file)
