"""The findings over KLoB's figures, counted anew from the tables they are drawn from."""

from __future__ import annotations

import re

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from helpers.klob import figures
from helpers.results.archive import archive
from helpers.results.figure import published

MAIN = "smollm2-135m_klob-mini"
CONTROLS = ["random", "constant"]


def title_of(figure: plt.Figure) -> str:
    plt.close(figure)
    return " ".join(figure.get_suptitle().split())


@pytest.fixture(scope="module")
def told():
    """A published figure's title."""
    entries = published(chapter="05")
    return lambda name: title_of(entries[name].draw())


@pytest.fixture(scope="module")
def edits() -> tuple[pd.DataFrame, dict[str, pd.DataFrame]]:
    """Gain of each fact's edit at each layer, and each locator's mass there, [facts, layers]."""
    tables = archive("klob").get(MAIN).tables
    unseen = tables["edits"][tables["edits"]["wording"] > 0]
    lead = (unseen["new"] - unseen["old"]).groupby([unseen["example"], unseen["layer"]]).mean()
    wide = lead.unstack()
    gains = wide.loc[:, wide.columns >= 0].sub(wide[-1], axis=0)
    consistency = tables["layers"][tables["layers"]["subtask"] == "consistency"]
    mass = {}
    for name, part in consistency.groupby("locator"):
        curves = part.pivot(index="example", columns="layer", values="mass").abs()
        if name not in CONTROLS and set(gains.index) <= set(curves.index):
            mass[str(name)] = curves.loc[gains.index].apply(lambda row: row / row.sum(), axis=1)
    return gains, mass


@pytest.mark.parametrize("model", ["smollm2-135m", "gemma3-270m"])
def test_the_most_consistent_locator(told, model):
    table = archive("klob").get(f"{model}_klob-mini").tables["similarities"]
    rows = table[(table["subtask"] == "consistency") & (table["granularity"] == "neuron")]
    rsim = (rows["candidate"] - rows["pairwise"]) / (1 - rows["pairwise"])
    means = rsim.groupby([rows["share"], rows["locator"]]).mean().unstack()
    first = sorted({figures.LABELS[name] for name in means.idxmax(axis=1)})
    name = "05_share" if model in MAIN else f"05_share_{model}_klob-mini"
    assert told(name) == f"The most consistent locator at every share: {' or '.join(first)}"


def test_late_layers_are_pointed_to_and_gain_less(told, edits):
    gains, mass = edits
    late = [layer for layer in gains if layer >= 0.8 * gains.shape[1]]
    pointed = sum(curves.mean().idxmax() in late for curves in mass.values())
    less = (gains.drop(columns=late).mean(axis=1) - gains[late].mean(axis=1)).mean()
    found = told("05_layers")
    assert found.startswith(f"{pointed} of {len(mass)} locators point to late layers")
    mean, low, high = map(float, re.findall(r"\d+\.\d", found))
    assert mean == pytest.approx(less, abs=0.05)
    assert 0 < low < mean < high


def test_no_locator_is_about_the_fact(told, edits):
    """Own against other facts: a permutation test of other words and another seed agrees."""
    gains, mass = edits
    ranked = gains.rank(axis=1).to_numpy()
    generator = np.random.default_rng(5)
    better = 0
    for curves in mass.values():
        both = np.corrcoef(curves.rank(axis=1).to_numpy(), ranked)[: len(gains), len(gains) :]
        own = both.diagonal().mean()
        dealt = [
            both[np.arange(len(gains)), generator.permutation(len(gains))].mean()
            for _ in range(1_000)
        ]
        better += np.mean(np.array(dealt) >= own) < 0.05
    assert told("05_locality").endswith(f": {better} of {len(mass)} locators")


def test_a_live_figure_counts_what_it_is_given():
    sets = np.zeros((3, 2, 10), dtype=bool)
    sets[:, 0, :5] = True
    sets[0, 1, 3] = True
    chance = 0.3 * 0.25 * 0.25 * 20
    assert title_of(figures.neuron_map(sets, title="a fact")) == (
        f"5 neurons are located in every wording; chance gives {chance:.1f}"
    )
    strips = {"c": (["one", "two"], np.array([[1.0, 3.0], [3.0, 1.0]]))}
    assert title_of(figures.layer_strips(strips, caption="x")) == (
        "1 of 2 sentences have their highest share in the last layer"
    )
    assert title_of(figures.rsim_line(0.6, 0.2, title="x")) == "RSim = 0.40 / 0.80 = 0.50"
