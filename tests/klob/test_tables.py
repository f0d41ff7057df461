"""KLoB's printed tables and figures from small tables made by hand."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from helpers.klob import figures as klob_figures
from helpers.klob import layer_figures as klob_layers
from helpers.klob import locality_tables
from helpers.klob import tables as klob_tables
from helpers.klob.construction.sentence_templates import load_templates
from helpers.klob.criteria import criteria_table, rsim_table
from helpers.results.archive import About, Archive, ArchiveError, Run
from helpers.results.figure import published
from helpers.results.text import published_table

LOCATORS = ("knowledge-neurons", "random")


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.fixture
def similarities() -> pd.DataFrame:
    rows = [
        (name, subtask, "neuron", share, example, 0.5 + 0.1 * example, 0.2, 0.1)
        for name, subtask, share, example in itertools.product(
            LOCATORS, ("consistency", "relevance"), (0.001, 0.01), range(3)
        )
    ]
    columns = ["locator", "subtask", "granularity", "share", "example"]
    return pd.DataFrame(rows, columns=[*columns, "candidate", "mean_scores", "pairwise"])


@pytest.fixture
def sentences() -> pd.DataFrame:
    rows = [
        (name, subtask, "neuron", 0, deviation, 1.0)
        for name in LOCATORS
        for subtask, deviation in (("consistency", 2.0), ("relevance", 2.0), ("unbiasedness", 3.0))
    ]
    columns = ["locator", "subtask", "granularity", "example", "deviation", "magnitude"]
    return pd.DataFrame(rows, columns=columns)


@pytest.fixture
def null() -> pd.DataFrame:
    rows = [
        (name, subtask, "neuron", 0.01, shuffled, 0.5, 0.02, 0.01, 0.001)
        for name, subtask, shuffled in itertools.product(
            LOCATORS, ("consistency", "relevance"), ("all", "relation")
        )
    ]
    columns = ["locator", "subtask", "granularity", "share", "shuffled"]
    return pd.DataFrame(
        rows, columns=[*columns, "observed", "mean", "standard_deviation", "p_value"]
    )


@pytest.fixture
def edits() -> pd.DataFrame:
    """Two facts, two layers; wording 0 is the edited one and must not count."""
    rows = [
        (example, layer, wording, new, -4.0)
        for example, layer, wording, new in (
            *((e, -1, w, -6.0) for e in (3, 8) for w in range(3)),
            *((3, 0, w, [0.0, -1.0, -3.0][w]) for w in range(3)),
            *((3, 1, w, -6.0) for w in range(3)),
            *((8, 0, w, -5.0) for w in range(3)),
            *((8, 1, w, [0.0, -2.0, -2.0][w]) for w in range(3)),
            *(
                (9, layer, w, np.nan if layer == 1 else -1.0)
                for layer in (-1, 0, 1)
                for w in range(3)
            ),
        )
    ]
    return pd.DataFrame(rows, columns=["example", "layer", "wording", "new", "old"])


def test_criteria_cells(similarities: pd.DataFrame, sentences: pd.DataFrame) -> None:
    table = klob_tables.criteria_text(similarities, sentences, granularity="neuron", share=0.01)
    assert table.index.tolist() == ["knowledge neurons (IG)", "random (control)"]
    assert table["consistency"].iloc[0].startswith("0.56  (+0.56, ")  # mean of .444 .556 .667
    options = {"granularity": "neuron", "share": 0.01, "baseline": "mean_scores"}
    shortcut = klob_tables.criteria_text(similarities, sentences, **options)
    assert shortcut["consistency"].iloc[0].startswith("0.50  (+0.50, ")  # mean of .375 .5 .625
    assert table["unbiasedness"].iloc[0] == "0.00  (-0.50, -0.50 … -0.50)"  # clipped at 0
    assert table["n"].tolist() == ["3, 3, 1"] * 2


def test_null_and_gap(similarities: pd.DataFrame, null: pd.DataFrame) -> None:
    table = klob_tables.null_text(null, subtask="relevance", granularity="neuron", share=0.01)
    assert table.loc["random (control)"].tolist() == ["+0.50", *["+0.02 ± 0.01 (p = 0.001)"] * 2]
    gap = klob_tables.gap_text(similarities, granularity="neuron", share=0.01)
    assert gap["gap"].iloc[0] == pytest.approx(0.5 - (0.6 - 0.1) / 0.9, abs=1e-3)


def test_sizes_stand_beside_the_papers() -> None:
    ours = {"c": {"relations": 18.0, "average length": 8.5, "examples": 1492}}
    table = klob_tables.size_table(ours, "mini")
    assert table.loc["c", ["examples, paper", "examples, mini"]].tolist() == ["13,675", "1,492"]
    assert table.loc["u", "relations, paper"] == ""
    relations = klob_tables.relation_table({"native_(P103)": 7}, "mini")
    assert relations.loc["native_(P103)"].tolist() == [851, 7]
    assert relations["paper"].sum() == 13_675
    sizes = published_table("klob_table_1").query("subtask == 'c' and metric == 'examples'")
    assert sizes["value"].tolist() == [relations["paper"].sum()]  # the paper's tables agree


def test_slips_name_a_wording_that_differs() -> None:
    table = klob_tables.slip_table()
    assert (table["printed"] != table["corrected"]).all()
    assert set(table["relation"]) == {r for r, w in load_templates("paper").items() if w.slip}


def test_gains_leave_out_the_edited_wording_and_failed_edits(edits: pd.DataFrame) -> None:
    gains = locality_tables.edit_gains(edits)
    # before: −6 − (−4) = −2 everywhere; fact 3 at layer 0: mean(−1, −3) + 4 = 2
    assert gains.to_dict("index") == {3: {0: 4.0, 1: 0.0}, 8: {0: 1.0, 1: 4.0}}


def test_locality_table(edits: pd.DataFrame) -> None:
    gains = locality_tables.edit_gains(edits)
    layers = pd.DataFrame(
        [
            ("knowledge-neurons", "consistency", example, layer, mass)
            for example, masses in {3: (-3.0, 1.0), 8: (1.0, 3.0)}.items()
            for layer, mass in enumerate(masses)
        ],
        columns=["locator", "subtask", "example", "layer", "mass"],
    )
    mass = locality_tables.layer_mass(layers, gains.index)
    assert mass["knowledge-neurons"].tolist() == [[0.75, 0.25], [0.25, 0.75]]
    fewer = layers[layers["example"] == 3].assign(locator="fisher")
    assert list(locality_tables.layer_mass(pd.concat([layers, fewer]), gains.index)) == list(mass)
    table = locality_tables.locality_table(gains, mass)
    assert table.query("pairing == 'own'")["mean"].item() == pytest.approx(1)
    assert table.query("pairing == 'other'")["mean"].item() == pytest.approx(-1)
    text = locality_tables.locality_text(table)
    assert text.loc["knowledge neurons (IG)", "difference"] == "+2.00 (+2.00 … +2.00)"
    figure = klob_figures.locality_dots(table, caption="two facts")
    assert figure.axes[0].get_yticklabels()[0].get_text() == "knowledge neurons (IG)"


def test_figures_show_what_they_are_given(
    similarities: pd.DataFrame, sentences: pd.DataFrame, null: pd.DataFrame
) -> None:
    sets = np.zeros((3, 4, 10), dtype=bool)
    sets[:, 1, 2] = True
    sets[0, 3, 4] = True
    neurons = klob_figures.neuron_map(sets, title="a fact")
    legend = neurons.axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [
        "in 1 of 3: 1\n(chance 3.8)",
        "in 2 of 3: 0\n(chance 0.1)",
        "in 3 of 3: 1\n(chance 0.0)",
    ]
    assert "1 neurons" in neurons.get_suptitle()
    title = klob_figures.rsim_line(0.6, 0.2, title="a fact").get_suptitle()
    assert title == "RSim = 0.40 / 0.80 = 0.50"
    table = criteria_table(similarities, sentences, granularity="neuron")
    chance = klob_tables.null_means(null, granularity="neuron", share=0.01)
    dots = klob_figures.criteria_dots(table, chance, caption="neurons")
    assert [axes.get_title(loc="left") for axes in dots.axes] == list(klob_figures.TITLES.values())
    lines = klob_figures.share_lines(rsim_table(similarities), caption="neurons")
    assert [len(axes.get_lines()) for axes in lines.axes] == [3, 3]  # two locators and zero
    strips = {"c": (["one", "two"], np.ones((2, 5))), "u": (["three"], np.ones((1, 5)))}
    assert len(klob_figures.layer_strips(strips, caption="x").axes) == 2 + 1  # and the colour bar
    curves = klob_layers.layer_curves(np.ones((3, 5)), {"random": np.ones((3, 5)) / 5}, caption="x")
    (image,) = curves.axes[1].get_images()
    assert image.get_array()[0].tolist() == pytest.approx([0.2] * 5)
    assert "0 of 1 locators" in curves.get_suptitle()
    values = np.repeat([[1.0], [2.0], [3.0]], 5, axis=1)
    banded = klob_layers.layer_curves(values, {"random": values / 5}, caption="x")
    (band,) = banded.axes[0].collections
    # t(2) = 4.3027, not 1.96
    assert band.get_paths()[0].vertices[:, 1].max() == pytest.approx(2 + 4.3027 / 3**0.5, abs=1e-3)


def test_captions_stay_on_the_canvas() -> None:
    words = "a caption of many words " * 8
    table = pd.DataFrame(
        {"locator": "fisher", "pairing": ["own", "other"], "mean": 0.1, "low": 0.0, "high": 0.2}
    )
    curves = np.ones((3, 5))
    for figure in (
        klob_figures.locality_dots(table, caption=words),
        klob_layers.layer_curves(curves, {"random": curves / 5}, caption=words),
        klob_figures.layer_strips({"c": (["one"], np.ones((1, 5)))}, caption=words),
    ):
        figure.draw_without_rendering()
        inside = figure.get_tightbbox()
        assert inside.x0 >= 0
        assert inside.x1 <= figure.get_figwidth()


def test_the_overlap_of_chance_is_that_of_independent_sets() -> None:
    sets = np.zeros((2, 1, 10), dtype=bool)
    sets[:, 0, :5] = True
    chance = klob_figures._shared_by_chance(sets)
    assert chance == pytest.approx([2.5, 5.0, 2.5])


def about(counts: dict[str, int], **more: Any) -> About:
    source = {"model": "tiny", "dataset": "x", "dtype": "float32", "device": "cpu", **more}
    return About(source, {name: {"counts": {"consistency": n}} for name, n in counts.items()})


def test_a_stored_run_draws_its_figures(
    tmp_path: Path, similarities: pd.DataFrame, sentences: pd.DataFrame, null: pd.DataFrame
) -> None:
    tables = {"similarities": similarities, "sentences": sentences, "null": null}
    Archive(tmp_path / "klob").put("tiny_klob-mini", tables, about(dict.fromkeys(LOCATORS, 3)))
    drawn = {name: entry.draw() for name, entry in published(tmp_path, chapter="05").items()}
    names = ["05_evaluation_tiny_klob-mini", "05_reading", "05_share_tiny_klob-mini"]
    assert list(drawn) == names
    assert len(drawn["05_evaluation_tiny_klob-mini"].axes) == 3


def test_locators_are_published_one_by_one(tmp_path: Path, sentences: pd.DataFrame) -> None:
    archive = Archive(tmp_path)

    def add(name: str, count: int, deviation: float, **more: Any) -> Run:
        rows = sentences[sentences["locator"] == name].assign(deviation=deviation)
        archive.put("r", {"sentences": rows}, about({name: count}, **more), by=["locator"])
        return archive.get("r")

    for name in LOCATORS:
        add(name, 9, 1.0)
    run = add("random", 2, 5.0)
    found = run.tables["sentences"].groupby("locator")["deviation"].agg(["size", "mean"])
    assert found.loc["knowledge-neurons"].tolist() == [3, 1]
    assert found.loc["random"].tolist() == [3, 5]
    assert klob_tables.made_of(run).endswith("x, 9 consistency; random: 2 consistency")
    with pytest.raises(ArchiveError, match="dtype 'float32', now 'bfloat16'"):
        add("random", 2, 5.0, dtype="bfloat16")


def test_a_run_without_any_of_a_granularity_has_an_empty_null(null: pd.DataFrame) -> None:
    table = klob_tables.null_text(null, subtask="relevance", granularity="parameter", share=0.01)
    assert table.empty
    assert len(table.columns) == 3
