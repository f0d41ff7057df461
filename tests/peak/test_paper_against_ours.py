"""One figure and two tables of the paper's main results and ours."""

from __future__ import annotations

import pytest

from helpers.peak.findings import findings
from helpers.peak.paper_against_ours import METHODS, METRICS, Ours, price_table, verdicts_table
from helpers.results.archive import archive
from helpers.results.text import findings_table, published_table


@pytest.fixture(scope="module")
def runs():
    names = ("smollm2-135m_peak-cf", "smollm2-135m_peak-t", "gemma3-270m_peak-cf")
    return [Ours.of(archive("peak").get(name)) for name in names]


def test_the_price_is_the_difference_of_the_papers_cells_and_of_ours(runs):
    table = price_table(runs)
    published = published_table("peak_table_3").query("model == 'gpt2-xl' and metric == 'AFF_hard'")
    cells = published.set_index("method")["value"]
    gain = cells["ROME"] - cells["ROME+APP"]
    assert table.loc[("ROME", "paper: gpt2-xl"), "AFF gain"] == f"{gain:.1f}"
    rome, careful = (runs[0].metrics[name]["AFF_hard"] for name in ("ROME", "ROME+APP"))
    ours = table.loc[("ROME", "ours: smollm2-135m"), "AFF gain"]
    assert ours.startswith(f"{100 * (rome - careful).mean():.1f} ±")


def test_findings_are_counted_as_notebook_03_reports_them_after_correction(runs):
    counted = verdicts_table(runs)["smollm2-135m, peak-t"]
    shown = findings_table(findings(runs[1].metrics)).groupby("finding")["Holm"].value_counts()
    assert "inconclusive" in counted["APP reduces perturbation"]  # two hold without correction
    for (finding, verdict), tests in shown.items():
        assert f"{verdict} {tests}" in counted[finding]
    assert counted["larger models perturb more"] == "–"


def test_every_cell_of_the_figure_is_in_the_papers_tables():
    published = published_table("peak_table_3")
    assert set(METRICS) - {"LS_authors"} <= set(published["metric"])
    assert {"FT" if m == "FT-L" else m for m in METHODS if "+" not in m} == {
        *published["method"][~published["method"].str.contains("APP")]
    }
