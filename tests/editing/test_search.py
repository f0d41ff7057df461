"""The recorded search: one objective for editors alone and with APP, and what presets state of it."""

from __future__ import annotations

import json

import pandas as pd
import pytest
import yaml

from helpers.editing.editors import EDITORS
from helpers.paths import PARAMS
from tools.search import objective

SEARCHES = sorted((PARAMS / "models" / "search").glob("*.csv"))
GIVEN = ("kn",)  # PEAK's values, whatever a search found with other steps


def row(es, gs, ls, aff, anf):
    return pd.DataFrame([{"ES": es, "GS": gs, "LS": ls, "AFF_hard": aff, "ANF_hard": anf}])


@pytest.mark.parametrize(
    ("means", "score"),
    [
        ((80, 80, 80, 20, 20), 80.0),  # all five alike
        ((100, 100, 100, 0, 50), 83.33),  # 5 / (4 / 100 + 1 / 50)
        ((100, 100, 100, 100, 0), 4.81),  # nothing kept counts as 1: 5 / (4 / 100 + 1)
    ],
)
def test_the_objective_is_the_harmonic_mean_of_five(means, score):
    assert objective(row(*means)).tolist() == [score]


@pytest.mark.parametrize("place", range(5))
def test_each_of_the_five_measures_counts(place):
    means = [80.0, 80.0, 80.0, 20.0, 20.0]
    means[place] = 50.0
    assert objective(row(*means)).item() < 80


@pytest.mark.parametrize("path", SEARCHES, ids=lambda path: path.stem)
def test_every_recorded_score_is_the_objectives(path):
    recorded = pd.read_csv(path)
    assert recorded["score"].tolist() == objective(recorded).tolist()


@pytest.mark.parametrize("path", SEARCHES, ids=lambda path: path.stem)
def test_presets_state_where_the_objective_would_choose_otherwise(path):
    of_model = yaml.safe_load((PARAMS / "models" / f"{path.stem}.yaml").read_text())["editors"]
    sections = yaml.safe_load((PARAMS / "generic.yaml").read_text())["of_any_model"] | of_model
    recorded = pd.read_csv(path)
    best = recorded.loc[recorded.groupby(["method", "records"])["score"].idxmax()]
    for method, point in zip(best["method"], best["point"], strict=True):
        editor = method.removesuffix("+app")
        name = editor if editor in sections else EDITORS[editor].section
        preset = sections[name]["tuned"]
        chosen = json.loads(point)
        of_preset = {name: preset[name] for name in chosen}
        if "app" in chosen:
            of_preset["app"] = {name: preset["app"][name] for name in chosen["app"]}
        if chosen != of_preset and method not in GIVEN:
            assert "common objective" in preset["source"], (method, chosen)
