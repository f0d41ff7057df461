"""The findings over notebook 03's figures, counted anew from the tables they are drawn from."""

from __future__ import annotations

import re

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from helpers.peak import figures
from helpers.peak.metrics_table import probabilities_table
from helpers.peak.stored_scores import scores_of
from helpers.peak.tables import method_metrics
from helpers.results.archive import archive
from helpers.results.figure import published
from helpers.results.text import published_table

MAIN = "smollm2-135m_peak-cf"
FACTORS = ("AFF_hard", "ANF_hard")


def numbers(figure: plt.Figure) -> list[int]:
    plt.close(figure)
    return [int(number) for number in re.findall(r"\d+", figure.get_suptitle())]


@pytest.fixture(scope="module")
def entries():
    return published(chapter="03")


def test_where_app_lowers_the_factors(entries):
    ours = []
    for run in archive("peak").runs():
        metrics = method_metrics(scores_of(run))
        for name in ("FT-L", "MEND", "ROME", "MEMIT"):
            both = metrics[name].join(metrics[f"{name}+APP"], rsuffix="_app")
            for factor in FACTORS:
                pair = both[[factor, f"{factor}_app"]].dropna().mean()
                ours.append(pair.iloc[1] < pair.iloc[0])
    tables = pd.concat([published_table(f"peak_table_{number}") for number in (3, 4, 9)])
    wide = tables[tables["metric"].isin(FACTORS)].pivot_table(
        index=["model", "dataset", "metric"], columns="method", values="value"
    )
    paper = [
        bool(pair.iloc[1] < pair.iloc[0])
        for name in ("FT", "MEND", "ROME", "MEMIT")
        for _, pair in wide[[name, f"{name}+APP"]].dropna().iterrows()
    ]
    expected = [sum(ours), len(ours), sum(paper), len(paper)]
    assert numbers(entries["03_paper"].draw()) == expected


def test_how_often_most_of_a_list_is_forgotten(entries):
    metrics = method_metrics(scores_of(archive("peak").get(MAIN)))
    above = {
        name: 100 * np.mean(table["AFF_hard"].dropna() > 0.5) for name, table in metrics.items()
    }
    worst = max((above[name], name) for name in above if f"{name}+APP" in above)[1]
    told = entries[f"03_spread_{MAIN}"].draw()
    assert f" {worst}, " in told.get_suptitle()
    assert numbers(told) == [50, round(above[worst]), round(above[f"{worst}+APP"])]


def test_after_how_many_methods_correct_answers_are_still_ahead(entries):
    found = []
    for table in scores_of(archive("peak").get(MAIN)).values():
        after = probabilities_table(table)[["correct_after", "hard_after"]].dropna()
        difference = after["correct_after"] - after["hard_after"]
        half = stats.t.ppf(0.975, len(after) - 1) * difference.sem()
        found.append(difference.mean() - half > 0)
    assert numbers(entries[f"03_lists_{MAIN}"].draw()) == [sum(found), len(found)]


def test_a_live_figure_names_what_forgets_most():
    columns = ("AFF_hard", "ANF_hard", "AFF_random", "ANF_random")
    table = pd.DataFrame({name: [0.2, 0.4] for name in columns})
    figure = figures.additivity_bars({"A": table, "B": 2 * table})
    plt.close(figure)
    assert figure.get_suptitle() == "AFF, hard: B forgets 60 %; A forgets 30 %"
