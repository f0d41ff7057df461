"""Figures by name: what can be drawn is listed at once, and redrawing gives the committed files."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from matplotlib import image
from matplotlib import pyplot as plt
from typer.testing import CliRunner

from helpers import UserError
from helpers.cli import app
from helpers.paths import FIGURES
from helpers.results import figure as figures
from helpers.results.archive import DATA, About, Archive, archive
from helpers.results.figure import (
    Drawing,
    Option,
    drawing,
    figures_named,
    published_figures,
    save,
)

published_figures()  # imports all chapters
KINDS = [next(kind.published(), None) for kind in list(figures._REGISTRY.values())]
COMMITTED = [each.name for each in KINDS if each and (FIGURES / f"{each.name}.png").exists()]


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
    assert names(data) == {"99_x_main": "Title main.", "99_x_other": "Title other."}
    assert list(names(data, main="main")) == ["99_x", "99_x_other"]
    assert list(names(data, needs=("b",))) == ["99_x_other"]
    assert list(names(data, needs=("c",))) == []


def test_a_kind_may_have_several_figures_of_a_run_or_one_of_all(data):
    each = ("editor", lambda run: ["rome", "ft"] if "b" in run.tables else [])
    assert names(data, each=each) == {
        "99_x_rome_other": "Title rome, other.",
        "99_x_ft_other": "Title ft, other.",
    }
    assert names(data, together=True) == {"99_x": "Title"}
    assert names(data, together=True, needs=("c",)) == {}


def test_a_run_under_a_name_of_its_own_has_its_figure_and_is_in_no_joint_one(data):
    table = pd.DataFrame({"x": [1]})
    Archive(data / "paper", label="mine").put("main", {"c": table}, About({"model": "other"}))
    assert names(data, needs=("c",)) == {"99_x_main@mine": "Title main@mine."}
    assert names(data, needs=("c",), together=True) == {}


def test_options_choose_among_what_the_data_have(data, monkeypatch):
    def drawn_with(run, *, share=1, editor=""):
        return drawn(run, share=share, editor=editor)

    options = {"k": Option("share", lambda run: [1, 2] if run.name == "main" else [2, 3])}
    each = ("editor", lambda run: ["rome", "ft"])
    kind = Drawing("99_x", "Title", drawn_with, of="paper", options=options, each=each)
    assert kind.offered(data) == {"editor": ["rome", "ft"], "k": ["1", "2", "3"]}  # one model
    one, other = kind.chosen({"k": "2", "editor": "ft"}, data)
    assert [one.name, other.name] == ["99_x_ft_main_k-2", "99_x_ft_other_k-2"]
    assert one.draw().axes[0].get_title() == "{'share': 2, 'editor': 'ft'}"
    (alone,) = kind.chosen({"k": "3", "editor": "rome"}, data)
    assert alone.name == "99_x_rome_other_k-3"
    for choices, message in (
        ({"mode": "deep"}, "99_x takes no --mode; it takes --editor, --k"),
        ({"model": "tiny"}, "99_x takes no --model; it takes --editor, --k"),
        (
            {"editor": "roem"},
            r"99_x: no editor 'roem' \(did you mean 'rome'\?\); there are rome, ft",
        ),
    ):
        with pytest.raises(UserError, match=message):
            kind.chosen(choices, data)
    asked_for = Drawing("99_y", "Title", drawn_with, of="paper", options=options, on_request="k")
    assert list(asked_for.published(data)) == []
    with pytest.raises(UserError, match="99_y: choose one with --k"):
        asked_for.chosen({}, data)
    monkeypatch.setitem(figures._REGISTRY, "99_y", asked_for)
    assert [entry.name for entry in figures_named("99_y", {"k": "1"}, data=data)] == [
        "99_y_main_k-1"
    ]


def test_what_is_drawn_on_request_is_offered_where_there_is_one(data):
    cases = {"case": Option("case", lambda run: [7])}
    kind = Drawing("99_x", "Title", drawn, of="paper", options=cases, on_request="case")
    assert kind.offered(data) == {"case": ["7"]}
    assert kind.chosen({"case": "7"}, data)
    with pytest.raises(UserError, match="99_x: choose one with --case"):
        kind.chosen({}, data)


def test_a_joint_figure_of_a_model_is_of_its_runs(data):
    other = About({"model": "other"})
    Archive(data / "paper").put("of_other", {"a": pd.DataFrame({"x": [1]})}, other)
    kind = Drawing(
        "99_x", "Title", lambda runs: [run.name for run in runs], of="paper", together=True
    )
    assert kind.offered(data) == {"model": ["tiny", "other"]}
    (entry,) = kind.chosen({"model": "tiny"}, data)
    assert (entry.name, entry.draw()) == ("99_x_model-tiny", ["main", "other"])


# Of each kind that takes options the first value of each.
CHOICES = [
    (kind.name, {name: values[0]})
    for kind in figures._REGISTRY.values()
    for name, values in kind.offered().items()
    if not kind.on_request
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "choices"), CHOICES)
def test_every_option_of_a_published_figure_draws(name, choices):
    entries = figures_named(name, choices)
    assert entries
    plt.close(entries[0].draw())


def test_a_recalled_case_is_drawn_by_number_editor_and_mode():
    choices = {"model": "smollm2-135m", "case": "1", "editor": "rome", "mode": "independent"}
    (entry,) = figures_named("06_recalled_case", choices)
    assert entry.name.endswith("_case-1_editor-rome_mode-independent")
    plt.close(entry.draw())


def test_no_graph_is_drawn_of_a_run_that_scores_half_of_its_chains():
    choices = {"model": "smollm2-135m", "case": "1", "editor": "ft-m+icd", "mode": "independent"}
    half_shown = archive("thinkedit").get("smollm2-135m_recalled-smollm2-135m@shown")
    assert "ft-m+icd" in [key.method for key in half_shown.keys]
    with pytest.raises(UserError, match="ft-m\\+icd"):
        figures_named("06_recalled_case", choices)


def test_chains_of_a_recalled_case_have_what_is_left_of_each_link():
    choices = {"model": "smollm2-135m", "case": "2", "editor": "ft-m", "mode": "independent"}
    (entry,) = figures_named("06_chain_samples", choices)
    fig = entry.draw()
    texts = [text.get_text() for text in fig.axes[0].texts]
    numbers = [text for text in texts if re.fullmatch(r"[\d.e-]+", text)]
    assert texts[0] == "Thailand"
    assert len(numbers) == 3  # of a chain of one link, and of one of two
    plt.close(fig)


@pytest.mark.usefixtures("data_folder")
def test_knowgics_graphs_are_drawn_by_number_where_the_authors_file_is():
    (entry,) = figures_named("06_knowgic", {"model": "smollm2-135m", "case": "15"})
    assert entry.name == "06_knowgic_case-15"
    fig = entry.draw()
    assert "Ward Kimball" in fig.get_suptitle().replace("\n", " ")
    plt.close(fig)


def test_figures_of_the_papers_ideas_need_no_results():
    for name in ("05_examples", "06_deduced"):
        (entry,) = figures_named(name)
        fig = entry.draw()
        assert fig.get_suptitle()
        plt.close(fig)


def test_the_command_takes_options_and_refuses_others(tmp_path, monkeypatch):
    monkeypatch.setattr("helpers.paths.FIGURES", tmp_path)
    run = CliRunner().invoke
    drawn_figure = run(app, ["figure", "05_evaluation", "--model", "gemma3-270m", "--k", "0.05"])
    assert drawn_figure.exit_code == 0, drawn_figure.output
    name = "05_evaluation_model-gemma3-270m_k-0.05.png"
    assert [path.name for path in tmp_path.glob("*.png")] == [name]
    refused = run(app, ["figure", "05_layers", "--model", "gemma3-270m"])
    assert refused.output == "error: 05_layers takes no --model; it takes no option\n"
    listed = run(app, ["figure", "--list"]).output
    assert "[05_evaluation: --model, --k]" in listed


def test_unknown_names_say_where_names_are_listed(tmp_path):
    for ask in (drawing, save):
        with pytest.raises(UserError, match=r"no figure '05_no' .*; see .* figure --list"):
            ask("05_no")
    with pytest.raises(UserError):
        save("05_layers", tmp_path, data=tmp_path)  # nothing is stored there
    with pytest.raises(UserError):
        drawing("hello")


def test_the_committed_list_is_what_can_be_drawn(tmp_path):
    figures.write_list(tmp_path / "list")
    assert (tmp_path / "list").read_text() == figures.LIST.read_text()


@pytest.mark.parametrize(
    ("paper", "parts"),
    [("peak", "ROME|KN"), ("ablations", "rome.app(@alpha=0x)?"), ("scorers", ".*(ft-l|edited.*)")],
)
def test_every_figure_is_drawn_after_a_part_of_a_run_was_published(paper, parts, tmp_path):
    source = Archive(DATA / paper).get("smollm2-135m_peak-cf")
    tables = {n: source.tables[n] for n in source.tables if re.fullmatch(parts, n)}
    first = {name: t[t["case_id"].isin(t["case_id"].unique()[:2])] for name, t in tables.items()}
    Archive(tmp_path / paper).put("partial", first, source.about)
    entries = [entry for name, entry in published_figures(tmp_path).items() if "partial" in name]
    assert entries
    for entry in entries:
        plt.close(entry.draw())


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMITTED)
def test_committed_figures_are_redrawn_as_they_are(name, tmp_path):
    new, _ = save(name, tmp_path)
    ours, committed = image.imread(new), image.imread(FIGURES / f"{name}.png")
    assert ours.shape == committed.shape
    # Where another processor rounds otherwise, an edge may differ; a moved mark is many pixels.
    assert (np.abs(ours - committed).max(axis=2) > 0.1).mean() < 1e-4
