"""Notebooks keep the house rules, carry their outputs, and agree with their params files."""

from __future__ import annotations

import math
import re
from pathlib import Path

import nbformat
import pytest
import torch
import yaml

from helpers.editing.interventions import LowRank
from helpers.editing.weight_edit import WeightEdit
from helpers.fetch import files_of
from helpers.params import defaults_of, notebook_of, read_params
from helpers.paths import FIGURES, NOTEBOOKS, PARAMS
from helpers.results.figure import drawing

ALL = sorted(NOTEBOOKS.glob("*.ipynb"))
BY_NAME = {path.stem: path for path in ALL}
FILES = sorted([*PARAMS.glob("paper/*/*.yaml"), *PARAMS.glob("quick/*"), *PARAMS.glob("larger/*")])


@pytest.fixture(params=ALL, ids=lambda path: path.stem)
def notebook(request):
    return request.param


def code_cells(path: Path) -> list:
    return [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]


def test_a_parameter_keeps_its_value(notebook):
    names = "|".join(defaults_of(notebook))
    _, *others = (cell.source for cell in code_cells(notebook))
    assert not [s for s in others if re.search(rf"^(?:{names}) =", s, re.MULTILINE)]


def test_quick_profile_is_the_default(notebook):
    file = PARAMS / "quick" / f"{notebook.stem}.yaml"
    defaults = defaults_of(notebook)
    assert yaml.safe_load(file.read_text()) == defaults
    assert read_params(file) == defaults


def test_a_plain_run_needs_no_official_file(notebook):
    """Where one is opened all the same, .ci/run fails, unless a cell copes with its absence."""
    params = read_params(PARAMS / "quick" / f"{notebook.stem}.yaml")
    named = (str(params.get(key)) for key in ("dataset", "source", "layout"))
    assert not any(map(files_of, named))
    coping = {"UserError", "NotHereError", "locate", "try", "exists", "is_file"}
    words = {word for c in code_cells(notebook) for word in re.findall(r"\w+", c.source)}
    assert coping & words == set()


def test_a_notebook_writes_nothing_among_published_tables_and_figures(notebook):
    """Only ``publish`` does: figures go through ``show``, to the run's own folder, files to ``output``."""
    source = "\n".join(cell.source for cell in code_cells(notebook))
    writes = re.findall(r"\.put\(|write_text\(|\.to_(?:parquet|csv)\(|savefig\(|FIGURES", source)
    assert not writes
    saved = re.findall(r"save_\w+\(.*", source)
    assert all(re.search(r"\bpath\b|^save_figure\(figure, \"\d\d_", each) for each in saved)


def test_captions_name_presets_in_words(notebook):
    """Which mark the generic one as untuned (``preset_words``)."""
    assert not [c.source for c in code_cells(notebook) if "preset {preset}" in c.source]


def test_every_parameter_is_explained(notebook):
    (cell,) = [c for c in code_cells(notebook) if "parameters" in c.metadata.get("tags", [])]
    assert all("# " in line for line in cell.source.splitlines() if line)


def test_cells_ran_in_order_without_errors(notebook):
    cells = code_cells(notebook)
    counts = [cell.execution_count for cell in cells]
    assert counts == list(range(1, len(cells) + 1))
    assert not any(o.output_type == "error" for cell in cells for o in cell.outputs)


def test_checked_cells_carry_outputs(notebook):
    checked = [
        c for c in code_cells(notebook) if "nbval-check-output" in c.metadata.get("tags", [])
    ]
    assert checked
    for cell in checked:
        printed = (o.output_type == "stream" and o.name == "stdout" for o in cell.outputs)
        shown = ("text/plain" in o.get("data", {}) for o in cell.outputs)
        assert any(printed) or any(shown)


def test_cells_are_short(notebook):
    lengths = sorted(len(cell.source.splitlines()) for cell in code_cells(notebook))
    assert lengths[-1] <= 40
    assert lengths[len(lengths) // 2] <= 12


def test_saved_figures_exist(notebook):
    for cell in code_cells(notebook):
        for name in re.findall(r'save_figure\([^"]*"(.+?)"', cell.source):
            pattern = re.sub(r"{.*?}", "*", name)  # an f-string names several
            assert list(FIGURES.glob(f"{pattern}.png"))
            assert list(FIGURES.glob(f"{pattern}.svg"))
        for name in re.findall(r'show\("(.+?)"', cell.source):
            kind = drawing(name)  # a figure of a run, or of one value of several, ends in its name
            ending = "_*" if kind.each or (kind.of and not kind.together and not kind.main) else ""
            assert list(FIGURES.glob(f"{name}{ending}.png"))
            assert list(FIGURES.glob(f"{name}{ending}.svg"))


@pytest.mark.parametrize(("case_id", "known"), [(3, True), (0, False)])
def test_aff_of_other_records_is_labelled_by_its_prompts(tiny, capsys, case_id, known):
    """Notebook 01 under a random update, on a record known at the edit prompt and on one that is not."""
    model = tiny("llama")
    layout, drawn = model.layout, torch.Generator().manual_seed(0)
    sizes = (layout.hidden_size, layout.intermediate_size)
    update = WeightEdit(
        {layout.mlp_out(1): LowRank(*(0.3 * torch.randn(n, 1, generator=drawn) for n in sizes))}
    )
    names = {"lm": model, "update": update, "update_app": update}
    names |= {"dataset": "peak-mini-cf", "case_id": case_id}
    start, *cells = (cell.source for cell in code_cells(BY_NAME["01_preliminaries"])[1:])
    exec(start.partition("\n\n")[0], names)  # its imports
    for source in cells[: 1 + next(i for i, s in enumerate(cells) if "both =" in s)]:
        if not re.search(
            r"build_editor\(|\.diagnostics|\b(?:editor|settings|delta|losses)\b", source
        ):
            exec(source, names)
    here, over_all = names["factors"]["AFF"], names["both"].loc["ROME", "AFF_hard"]
    told = capsys.readouterr().out
    assert re.search(rf"edit prompt: .*'AFF': {round(here, 2)}\b", told)
    assert re.search(r"means over all prompts.*AFF_hard.*ROME", told)
    assert here != pytest.approx(over_all)
    assert math.isnan(here) != known


@pytest.mark.parametrize("file", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_params_fit_their_notebook(file):
    name = file.stem if file.parent.name in ("quick", "larger") else file.parent.name
    assert read_params(file, BY_NAME[name])
    assert notebook_of(file) == BY_NAME[name]
