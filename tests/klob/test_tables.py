"""KLoB's tables and figures from small tables made by hand."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from helpers.klob import figures, tables
from helpers.results.archive import About, Archive
from helpers.results.figure import published_figures

LOCATORS = ("knowledge-neurons", "random")


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    yield
    plt.close("all")


@pytest.fixture
def similarities() -> pd.DataFrame:
    rows = [
        (name, subtask, "neuron", share, example, "P17", 0.5 + 0.1 * example, 0.2, 0.1)
        for name, subtask, share, example in itertools.product(
            LOCATORS, ("consistency", "relevance"), (0.001, 0.01), range(3)
        )
    ]
    columns = ["locator", "subtask", "granularity", "share", "example", "relation"]
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


def test_rsim_and_rsd_by_hand(similarities: pd.DataFrame, sentences: pd.DataFrame) -> None:
    assert tables.rsd_table(sentences, similarities)["mean"].tolist() == [1 - 3 / 2] * 2
    sizes = sentences.assign(magnitude=sentences["deviation"])  # the spread only followed the size
    assert tables.rsd_table(sizes, similarities, relative=True)["mean"].tolist() == [0, 0]
    factual = sentences.query("subtask != 'unbiasedness'")
    assert tables.rsd_table(factual, similarities)["mean"].isna().all()
    long = tables.criteria_table(similarities, sentences, granularity="neuron").table
    means = long[long["locator"] == "random"].set_index("criterion")["mean"].to_dict()
    exact = (4 + 5 + 6) / 9 / 3
    expected = {"consistency": exact, "relevance": exact, "unbiasedness": -0.5}
    assert means == pytest.approx(expected)


def test_criteria_cells(similarities: pd.DataFrame, sentences: pd.DataFrame) -> None:
    shown = tables.criteria_text(similarities, sentences, granularity="neuron", share=0.01)
    table = shown.table
    assert table.index.tolist() == ["knowledge neurons (IG)", "random (control)"]
    ours = table[["consistency", "relevance", "unbiasedness"]]
    assert [cell[:7] for cell in ours.iloc[0]] == ["+0.56 (", "+0.56 (", "-0.50"]
    # each at (0.3, 0.4, 0.5) / 0.8 with the shortcut; the paper's RSD is no less than 0
    papers = ["consistency (paper)", "relevance (paper)", "unbiasedness (paper)"]
    assert table[papers].iloc[0].tolist() == ["0.50", "0.50", "0.00"]
    assert list(table) == [name for pair in zip(ours, papers, strict=True) for name in pair]  # no n
    assert table["unbiasedness"].tolist() == ["-0.50"] * 2  # one sentence has no interval
    assert shown.note == "too few relations for tests (1): intervals over records"
    fewer = similarities.query("locator == 'random' or example < 2")
    table = tables.criteria_text(fewer, sentences, granularity="neuron", share=0.01).table
    assert table["n"].tolist() == ["2, 2, 1", "3, 3, 1"]


def test_intervals_are_by_relation_where_there_are_eight(
    similarities: pd.DataFrame, sentences: pd.DataFrame
) -> None:
    """Examples of a relation that are equal add nothing: three of each are as wide as one of each."""
    one_each = pd.concat(
        similarities.query("example == 0").assign(
            example=place, relation=f"P{place}", candidate=0.3 + place / 20
        )
        for place in range(8)
    )
    copies = [one_each.assign(example=one_each["example"] + 8 * copy) for copy in range(3)]
    table, again = (
        tables.rsim_table(rows.query("share == 0.01")) for rows in (one_each, pd.concat(copies))
    )
    assert again.table["n"].tolist() == [24] * 4
    assert again.table["low"].tolist() == pytest.approx(table.table["low"].tolist())
    assert again.note == "intervals and tests by relation (8 relations)"
    spread = tables.rsd_table(sentences, similarities)
    assert spread["low"].isna().all()


def test_papers_values_are_clipped_for_each_example(
    similarities: pd.DataFrame, sentences: pd.DataFrame
) -> None:
    """Sim_cand 0.5, 0.6, 0.7 against a shortcut of 0.6: RSim −1/4, 0 and 1/4, whose clipped mean is 1/12."""
    central = similarities.assign(mean_scores=0.6)
    values = tables.paper_values(central, sentences, granularity="neuron", share=0.01)
    assert values["consistency"].tolist() == pytest.approx([1 / 12] * 2)


def test_examples_in_wordings_as_printed_are_apart_from_corrected_ones(
    similarities: pd.DataFrame,
) -> None:
    """Of three examples two are of P17, whose templates are corrected, and one of P50, as printed."""
    relations = {0: "is-located_(P17)", 1: "is-located_(P17)", 2: "author_(P50)"}
    labelled = similarities.assign(relation=similarities["example"].map(relations))
    table = tables.wordings_text(labelled, granularity="neuron", share=0.01).table
    row = table.loc["random (control)"]
    assert row[["n, all", "n, as printed", "n, corrected"]].tolist() == [3, 1, 2]
    assert row["as printed"] == "+0.67"  # (0.7 − 0.1) / 0.9
    assert row["corrected"].startswith("+0.50 (")  # (0.4 + 0.5) / 0.9 / 2


def test_null_and_gap(similarities: pd.DataFrame, null: pd.DataFrame) -> None:
    table = tables.null_text(null, subtask="relevance", granularity="neuron", share=0.01)
    assert list(table.to_dict("index")["random (control)"].values()) == [
        "+0.50",
        *["+0.02 ± 0.01 (p = 0.001)"] * 2,
    ]
    empty = tables.null_text(null, subtask="relevance", granularity="parameter", share=0.01)
    assert empty.shape == (0, 3)
    gap = tables.gap_text(similarities, granularity="neuron", share=0.01)
    assert gap["gap"].iloc[0] == pytest.approx(0.5 - (0.6 - 0.1) / 0.9, abs=1e-3)


def test_sizes_are_next_to_the_papers() -> None:
    cells = tables.size_table("klob-mini").to_dict("index")
    assert cells["c"]["examples, paper"] == "13,675"
    assert cells["c"]["examples, klob-mini"] == "492"
    assert cells["u"]["relations, klob-mini"] == ""
    assert cells["u"]["average length, paper"] == "10.10"


def test_figures_of_a_notebook_show_what_they_are_given() -> None:
    sets = [np.array([12]), np.array([12]), np.array([34])]
    neurons = figures.neuron_counts(sets, (4, 10), title="a fact")
    legend = neurons.axes[0].get_legend()
    assert legend is not None
    labels = [text.get_text() for text in legend.get_texts()]
    assert [label[:12] for label in labels] == ["in 3 of 3: 0", "in 2 of 3: 1", "in 1 of 3: 1"]
    assert labels[-1].endswith("(chance: 3)")
    title = figures.rsim_line(0.6, 0.2, title="a fact").get_suptitle()
    assert "RSim = 0.40 / 0.80 = 0.50:" in title.replace("\n", " ")


def test_a_stored_run_draws_its_figures(
    tmp_path: Path, similarities: pd.DataFrame, sentences: pd.DataFrame, null: pd.DataFrame
) -> None:
    long = {"similarities": similarities, "sentences": sentences, "null": null}
    parts = {
        f"{kind}: {name}": table[table["locator"] == name]
        for kind, table in long.items()
        for name in LOCATORS
    }
    source = {"model": "tiny", "dataset": "x", "dtype": "float32", "device": "cpu"}
    settings = {name: {"counts": {"consistency": 3}} for name in parts}
    Archive(tmp_path / "klob").put("tiny_klob-mini", parts, About(source, settings))
    drawn = {
        name: entry.draw() for name, entry in published_figures(tmp_path, chapter="05").items()
    }
    assert set(drawn) == {"05_evaluation", "05_examples", "05_reading"}
    dots = drawn["05_evaluation"]
    titles = [axes.get_title(loc="left") for axes in dots.axes]
    assert titles == list(figures.TITLES.values())
