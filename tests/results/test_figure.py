"""Figures by name: what can be drawn is listed at once, and redrawing gives the committed files."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib import image
from matplotlib import pyplot as plt

from helpers.paths import FIGURES
from helpers.results import figure as figures
from helpers.results.archive import DATA, About, Archive
from helpers.results.figure import Drawing, FigureError, drawing, published, save

COMMITTED = [name for name in published() if (FIGURES / f"{name}.png").exists()]


def drawn(*runs, **options):
    axes = plt.figure().add_subplot()
    axes.set_title(str(options))
    return axes.figure


@pytest.fixture
def data(tmp_path):
    about = About({"model": "tiny"})
    for run in ("main", "other"):
        tables = {"a": pd.DataFrame({"x": [1]})}
        Archive(tmp_path / "paper").put(run, tables, about)
    Archive(tmp_path / "paper").put("other", {"b": pd.DataFrame({"x": [2]})}, about)
    return tmp_path


def names(data, **how):
    kind = Drawing("99_x", "Title", drawn, of="paper", **how)
    return {entry.name: entry.title for entry in kind.published(data)}


def test_a_kind_has_a_figure_for_every_run_with_its_tables(data):
    assert names(data) == {"99_x_main": "Title, main", "99_x_other": "Title, other"}
    assert list(names(data, main="main")) == ["99_x", "99_x_other"]
    assert list(names(data, needs=("b",))) == ["99_x_other"]
    assert list(names(data, needs=("c",))) == []


def test_a_kind_may_have_several_figures_of_a_run_or_one_of_all(data):
    each = ("editor", lambda run: ["rome", "ft"] if "b" in run.tables else [])
    assert names(data, each=each) == {
        "99_x_rome_other": "Title, rome, other",
        "99_x_ft_other": "Title, ft, other",
    }
    assert names(data, together=True) == {"99_x": "Title"}
    assert names(data, together=True, needs=("c",)) == {}


def test_a_run_under_a_name_of_its_own_has_its_figure_and_is_in_no_joint_one(data):
    table = pd.DataFrame({"x": [1]})
    Archive(data / "paper", label="mine").put("main", {"c": table}, About({"model": "other"}))
    assert names(data, needs=("c",)) == {"99_x_main@mine": "Title, main@mine"}
    assert names(data, needs=("c",), together=True) == {}


def test_unknown_names_say_where_names_are_listed(tmp_path):
    for ask in (drawing, save):
        with pytest.raises(FigureError, match=r"no figure '05_no'; see .* figure --list"):
            ask("05_no")
    with pytest.raises(FigureError):
        save("05_share", tmp_path, data=tmp_path)  # nothing is stored there
    with pytest.raises(FigureError):
        drawing("hello")


def test_listing_imports_nothing_that_computes_or_draws():
    heavy = "{'torch', 'transformers', 'pandas', 'numpy', 'matplotlib', 'scipy'}"
    code = (
        "import sys; from helpers.results.figure import published; assert published();"
        f"print(sorted({heavy} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("chapter", figures.CHAPTERS)
def test_names_begin_with_their_chapter(chapter):
    assert all(name.startswith(f"{chapter}_") for name in published(chapter=chapter))


def first(tables, keep, cases=2):
    """Tables cut to the rows of ``keep`` and to the first cases."""
    for name, table in tables.items():
        for column, value in keep.items():
            if column in table:
                table = table[table[column].isin([value, "before", "none"])]
        if "case_id" in table and name not in ("chains", "edits"):
            table = table[table["case_id"].isin(table["case_id"].unique()[:cases])]
        yield name, table


@pytest.mark.parametrize(
    ("paper", "run", "names", "keep"),
    [
        ("peak", "smollm2-135m_peak-cf", ["RECT"], {}),  # which is not in the paper
        ("peak", "smollm2-135m_peak-cf", ["ROME", "KN"], {}),
        ("ablations", "smollm2-135m_peak-cf", ["rome+app@margin=1", "rome after 1"], {}),
        ("ablations", "smollm2-135m_peak-cf", ["ft-m", "said by ft-m"], {}),
        ("klob", "smollm2-135m_klob-mini", [], {"locator": "random"}),
        ("thinkedit", "smollm2-135m", [], {"method": "memit", "mode": "independent"}),
        ("thinkedit", "smollm2-135m", [], {"method": "rome", "mode": "sequential"}),
        (
            *("thinkedit", "smollm2-135m_recalled-smollm2-135m", []),
            {"method": "memit", "mode": "independent"},
        ),
    ],
)
def test_every_figure_is_drawn_after_a_part_of_a_run_was_published(
    paper, run, names, keep, tmp_path
):
    source = Archive(DATA / paper).get(run)
    tables = dict(first({name: source.tables[name] for name in names or source.tables}, keep))
    words = f"{keep.get('method', '')}, {keep.get('mode', '')}"
    settings = {
        part: made
        for part, made in source.about.settings.items()
        if ": " not in part or part.endswith(f": {words}")
    }
    Archive(tmp_path / paper).put("partial", tables, replace(source.about, settings=settings))
    entries = {n: e for n, e in published(tmp_path).items() if not n.endswith("_reading")}
    assert entries
    for entry in entries.values():
        plt.close(entry.draw())


@pytest.mark.parametrize("name", COMMITTED)
def test_committed_figures_are_redrawn_as_they_are(name, tmp_path):
    new, _ = save(name, tmp_path)
    ours, committed = image.imread(new), image.imread(FIGURES / f"{name}.png")
    assert ours.shape == committed.shape
    # Where another processor rounds otherwise, an edge may differ; a moved mark is many pixels.
    assert (np.abs(ours - committed).max(axis=2) > 0.1).mean() < 1e-4
