"""Construction's figures hold the numbers they are given, and are redrawn alike from stored tables."""

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from helpers.peak.construction.figures import (
    construction_funnel,
    known_by_relation,
    list_sizes,
)
from helpers.peak.construction.model_filter import Filtered
from helpers.peak.construction.run import tables_of
from helpers.peak.construction.settings import Built, Rejection
from helpers.results.archive import About, Archive
from helpers.results.figure import published
from helpers.results.style import save_figure

FUNNELS = {
    "CF": [("facts", 900), ("enough", 40), ("known", 7)],
    "T": [("facts", 900), ("known", 2)],
}
TABLE = pd.DataFrame(
    {
        "case_id": [0, 1, 2],
        "relation": ["P47", "P47", "re_P17"],
        "subject": ["A", "B", "C"],
        "step": ["", "model knows correct answers", ""],
        "correct": [10, 8, 20],
        "correct_kept": [5, 0, 10],
        "hard": [6, 7, 8],
    }
)


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def test_the_funnel_draws_one_bar_a_step_with_its_count():
    figure = construction_funnel(FUNNELS, caption="ours")
    left, right = figure.axes
    assert [bar.get_width() for bar in left.patches] == [900, 40, 7]
    assert [text.get_text() for text in right.texts] == ["900", "2"]
    assert left.get_xscale() == "log"
    title = "7 of 900 facts become CF records, 2 of 900 facts become T records"
    assert figure.get_suptitle() == title


def test_known_shares_are_placed_by_relation_and_outcome():
    figure = known_by_relation(TABLE)
    axes = figure.axes[0]
    kept, lost, means = axes.collections
    assert sorted(kept.get_offsets()[:, 0]) == [50, 50]
    assert list(lost.get_offsets()[:, 0]) == [0]
    assert list(means.get_offsets()[:, 0]) == [25, 50]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["P47", "re_P17"]
    assert figure.get_suptitle().startswith("In 1 of 2 relations the model knows less than half")


def test_list_sizes_compare_sets():
    figure = list_sizes({"ours": TABLE, "theirs": TABLE.assign(correct=[4, 5, 7])})
    correct, hard = figure.axes
    assert figure.get_suptitle() == "Correct answers in the median record: 10 in ours, 5 in theirs"
    assert len(correct.lines) == len(hard.lines) == 2
    assert max(hard.lines[0].get_xdata()) == 8


def test_stored_tables_give_the_same_figures(tmp_path):
    source = {"facts": "ours", "model": "m", "dtype": "float32", "device": "cpu", "rule": "rank"}
    filtered = Filtered((), TABLE)
    built = Built((), (Rejection("A", "P47", "locality prompts"),))
    tables = tables_of({"CF": built, "T": built}, {"CF": filtered, "T": filtered})
    funnels = {name: [*built.funnel(), *filtered.funnel()] for name in ("CF", "T")}
    Archive(tmp_path / "construction").put("ours_m", tables, About(source))
    drawn = published(tmp_path, chapter="02")
    assert list(drawn) == ["02_funnel_ours_m", "02_known_ours_m", "02_list_sizes_ours_m"]
    caption = "ours facts, m, float32 on cpu, rule rank"
    paths = [
        save_figure(figure, "02_funnel", tmp_path / folder)
        for folder, figure in (
            ("now", construction_funnel(funnels, caption=caption)),
            ("stored", drawn["02_funnel_ours_m"].draw()),
        )
    ]
    for one, other in zip(*paths, strict=True):
        assert one.read_bytes() == other.read_bytes()
    for entry in drawn.values():
        assert entry.draw().axes
    assert set(tables["filter"]["name"]) == {
        "shares border with",
        "country (inverse)",
    }


def test_no_stored_tables_no_figures(tmp_path):
    assert published(tmp_path, chapter="02") == {}
