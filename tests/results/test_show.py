"""What notebooks show: tables as HTML and comparable text, figures saved and at twice the pixels."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from helpers import paths
from helpers.paths import REPOSITORY, RUNS
from helpers.results import show as module
from helpers.results.notes import ShownTable
from helpers.results.show import show, table_output

TABLE = pd.DataFrame(
    {"ES": [99.123, np.nan], "AFF_hard": [1.0, 2.5], "note": ["<b>", "†"]},
    index=pd.Index(["ROME", "KN"], name="method"),
)


@pytest.fixture
def displayed(monkeypatch):
    found = []
    monkeypatch.setattr(module, "display", lambda *a, **k: found.append((a[0], k)))
    return found


def test_a_table_is_html_for_readers_and_text_for_the_check():
    output = table_output(TABLE, title="two <methods>", decimals=1)
    assert output["text/plain"].splitlines() == [
        "two <methods>",
        "         ES  AFF_hard note",
        "method                    ",
        "ROME   99.1       1.0  <b>",
        "KN        –       2.5    †",
    ]
    html = output["text/html"]
    assert "position:sticky;left:0" in html
    assert "&lt;b&gt;" in html
    assert "two &lt;methods&gt;" in html
    assert html.index(">ES<") < html.index("AFF_<wbr>hard")


def test_the_line_below_a_table_links_to_the_statistics():
    output = table_output(ShownTable(TABLE, "intervals by relation <8>"))
    assert output["text/plain"].endswith("\nintervals by relation <8>")
    link = '<a href="../docs/statistics.md">statistics</a></p>'
    assert output["text/html"].endswith(f"<p>intervals by relation &lt;8&gt; · {link}")
    assert link not in table_output(TABLE)["text/html"]


def test_showing_a_figure_saves_it_shows_it_and_closes_it(displayed, monkeypatch, tmp_path):
    """In a folder that git ignores: Run All leaves git clean."""
    monkeypatch.delenv("HELPERS_FIGURES", raising=False)
    monkeypatch.setattr(paths, "RUNS", tmp_path)
    plt.close("all")
    show("05_neurons", [np.array([0, 1]), np.array([1, 5])], (2, 4), title="a fact")
    assert {path.name for path in tmp_path.rglob("*.*")} == {"05_neurons.png", "05_neurons.svg"}
    assert f"/{RUNS.name}/" in (REPOSITORY / ".gitignore").read_text().split()
    (output, options), (caption, _) = displayed
    assert set(output) == {"image/png", "text/plain"}
    assert options["metadata"]["image/png"]["width"] == 660
    assert "how many wordings of one fact share them" in caption["text/markdown"]
    assert plt.get_fignums() == []


def test_a_run_keeps_the_tables_it_shows(tmp_path, monkeypatch):
    show(TABLE, title="shown by hand")
    monkeypatch.setenv("HELPERS_TABLES", str(tmp_path / "tables"))
    show(TABLE, title="PEAK-CF, 8 records\npreset tuned")
    show(TABLE.reset_index(drop=True), index=False, name="editing")
    show(pd.DataFrame({"ES": [2 / 3]}, index=["ROME"]))
    first, second, third = sorted((tmp_path / "tables").iterdir())
    assert (first.name, second.name) == ("01-PEAK-CF-8-records.csv", "02-editing.csv")
    pd.testing.assert_frame_equal(pd.read_csv(first, index_col="method"), TABLE)
    assert pd.read_csv(second).columns.tolist() == list(TABLE)
    assert third.name == "03-ES.csv"
    assert third.read_text() == "row 1,ES\nROME,0.666667\n"
