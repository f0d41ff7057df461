"""ThinkEdit's tables and figures from small score tables; the paper's tables in the same form."""

import matplotlib
import numpy as np
import pandas as pd
import pytest

matplotlib.use("Agg")

from helpers.data import knowgic
from helpers.metrics.statistics import mean_interval
from helpers.reporting import (
    graph_drawings,
    thinkedit_differences,
    thinkedit_figures,
    thinkedit_stored,
    thinkedit_tables,
)
from helpers.thinkedit import tables
from helpers.thinkedit.graph import graph_of_facts

MINI = knowgic.load_edits("mini")


@pytest.fixture
def scores() -> pd.DataFrame:
    """Sampled counts of two methods on the packaged edits: one forgets nothing, one every object."""
    rows = [(edit.case_id, item, 4, 0, 5) for edit in MINI for item, _ in enumerate(edit.facts)]
    before = pd.DataFrame(rows, columns=["case_id", "item", "hits", "new_hits", "n"])
    own = tables.chain_index(MINI).query("own")[["case_id", "item"]].drop_duplicates()
    lost = before.merge(own, how="left", indicator=True)["_merge"] == "both"
    forgetful = before.assign(hits=np.where(lost, 0, 4))
    parts = [
        before.assign(method="none", mode="before"),
        before.assign(method="memit", mode="independent"),
        forgetful.assign(method="rome", mode="independent"),
    ]
    return pd.concat(parts, ignore_index=True).assign(model="m")


@pytest.fixture
def evaluation(scores):
    chains = tables.chain_index(MINI)
    return thinkedit_tables.evaluate_scores(scores, chains, estimator="sampled")


def test_an_edit_that_forgets_the_subjects_facts_is_deep_and_keeps_the_context(evaluation):
    table = thinkedit_tables.technique_table(evaluation, mode="independent").set_index("method")
    assert table.index.tolist() == ["memit", "rome"]
    assert table["IFR"].tolist() == pytest.approx([1.0, 0.0])
    assert table["CKP"].tolist() == pytest.approx([1.0, 1.0])
    assert table["n"].tolist() == [3, 3]
    lengths = thinkedit_tables.length_table(evaluation, mode="independent").set_index("method")
    assert lengths.loc["memit", "overall"] == pytest.approx(1.0)
    assert lengths.loc["memit", ["1", "2", "3", "4", "5"]].tolist() == pytest.approx([1.0] * 5)


def test_context_that_was_never_known_counts_as_kept_and_can_be_left_out(scores):
    first = MINI[0].case_id
    ignorant = scores.assign(hits=scores["hits"].where(scores["case_id"] != first, 0))
    half = ignorant["method"].eq("memit")
    ignorant["hits"] = ignorant["hits"].where(~half, ignorant["hits"] // 2)
    evaluation = thinkedit_tables.evaluate_scores(
        ignorant, tables.chain_index(MINI), estimator="sampled"
    )
    table = thinkedit_tables.technique_table(evaluation, mode="independent").set_index("method")
    assert table.loc["memit", "CKP"] == pytest.approx((1 + 0.5 + 0.5) / 3)
    assert table.loc["memit", ["CKP known", "n known"]].tolist() == pytest.approx([0.5, 2])
    pooled = thinkedit_tables.pooled_table(evaluation, mode="independent").set_index("method")
    assert pooled.loc["memit", "CKP"] == pytest.approx(0.5)
    context = evaluation.context.query("method == 'memit'")
    assert pooled.loc["memit", "facts"] == (context["edit"] != first).sum()


def test_methods_with_app_are_set_beside_those_without(scores):
    after = scores[scores["mode"] != "before"]
    with_app = after[after["method"] == "rome"].assign(method="memit+app")
    found = thinkedit_tables.evaluate_scores(
        pd.concat([scores, with_app]), tables.chain_index(MINI), estimator="sampled"
    )
    plain, app = (
        thinkedit_tables.technique_table(part, mode="independent").set_index("method")["IFR"]
        for part in thinkedit_tables.split_app(found)
    )
    assert plain.to_dict() == pytest.approx({"memit": 1.0, "rome": 0.0})
    assert app.to_dict() == pytest.approx({"memit": 0.0})


def test_new_facts_are_counted_on_chains_beyond_the_edit_itself(evaluation):
    table = thinkedit_tables.new_fact_table(evaluation, mode="independent").set_index("method")
    chains = evaluation.new_recovery.query("mode == 'independent' and length > 1")
    for method, part in chains.groupby("method"):
        assert table.loc[method, "wins_before"] == pytest.approx(part["wins_before"].mean())
        assert table.loc[method, "wins_after"] == pytest.approx(part["wins_after"].mean())


def test_chain_counts_add_up(evaluation):
    counts = thinkedit_tables.chain_counts(evaluation, mode="independent")
    assert counts.groupby("method")["chains"].sum().tolist() == [29, 29]
    assert (counts["deducible"] == counts["chains"]).all()
    assert counts.query("method == 'rome'")["active"].sum() == 0


def test_missing_results_say_how_to_make_them(tmp_path, evaluation):
    with pytest.raises(
        thinkedit_stored.MissingScoresError, match=r"publishing.thinkedit --model m --method"
    ):
        thinkedit_stored.stored("exact", ["m"], tmp_path)
    with pytest.raises(thinkedit_stored.MissingScoresError, match="--publish"):
        thinkedit_stored.stored_chains(tmp_path)
    with pytest.raises(thinkedit_stored.MissingScoresError, match="'sequential'"):
        thinkedit_tables.technique_table(evaluation, mode="sequential")


def test_differences_are_of_the_same_edits_and_carry_their_interval(evaluation):
    values = thinkedit_differences.per_edit(evaluation, mode="independent")
    assert len(values) == 2 * len(MINI)
    (row,) = thinkedit_differences.difference_table(
        thinkedit_differences.minus_method(values, "memit")
    ).to_dict("records")
    assert row["method"] == "rome"
    assert row["IFR"] == "-1.000 ± 0.000 (n=3)"
    assert row["CKP known"] == "+0.000 ± 0.000 (n=3)"
    alone = values.drop(index="memit", level="method")
    assert thinkedit_differences.difference_table(
        thinkedit_differences.minus_method(alone, "memit")
    ).empty
    changed = values.copy()
    changed.loc[("m", "rome"), "IFR"] = [0.1, 0.2, 0.6]  # the first edit is missing
    changed.iloc[0, 0] = np.nan
    table = thinkedit_differences.difference_table(changed - values).set_index("method")
    # half width t(0.975, 2) * s / sqrt(3) of 0.1, 0.2, 0.6
    assert table.loc["rome", "IFR"] == "+0.300 ± 0.657 (n=3)"
    assert table.loc["memit", "IFR"].endswith("(n=2)")


def test_a_techniques_interval_is_that_of_its_edits(scores):
    halved = scores["case_id"].eq(MINI[0].case_id) & scores["method"].eq("memit")
    scores["hits"] = scores["hits"].where(~halved, scores["hits"] // 2)
    found = thinkedit_tables.evaluate_scores(scores, tables.chain_index(MINI), estimator="sampled")
    table = thinkedit_tables.technique_table(found, mode="independent").set_index("method")
    values = thinkedit_differences.per_edit(found, mode="independent").loc[("m", "memit"), "IFR"]
    expected = mean_interval(values)
    assert table.loc["memit", "IFR ±"] == pytest.approx((expected.high - expected.low) / 2)
    assert table.loc["memit", "IFR ±"] > 0.1


def test_the_papers_tables_have_the_same_form(evaluation):
    techniques, lengths = thinkedit_tables.paper_techniques(), thinkedit_tables.paper_lengths()
    assert techniques["method"].tolist() == list(thinkedit_tables.METHODS) * 2
    assert list(lengths.columns)[2:] == list(thinkedit_tables.STEPS)
    merged = techniques.merge(lengths, on=["model", "method"])
    assert (merged["IFR"] == merged["overall"]).all()


def test_figures_draw_what_the_tables_say(evaluation):
    lengths = thinkedit_tables.length_table(evaluation, mode="independent")
    (axes,) = thinkedit_figures.recovery_by_length(lengths).axes
    assert axes.lines[0].get_ydata().tolist() == pytest.approx([1.0] * 5)
    techniques = thinkedit_tables.technique_table(evaluation, mode="independent")
    (axes,) = thinkedit_figures.preservation_bars(techniques).axes
    assert [patch.get_height() for patch in axes.patches] == pytest.approx([1.0, 1.0])
    (axes,) = thinkedit_figures.recovery_against_preservation(techniques).axes
    assert len(axes.collections) == 2 * len(techniques)  # a bar each way
    (axes,) = thinkedit_figures.recovery_against_preservation(techniques, techniques).axes
    assert axes.lines[1].get_xdata()[0] == pytest.approx(0.0)
    counts = thinkedit_tables.chain_counts(evaluation, mode="independent")
    (axes,) = thinkedit_figures.chain_counts_bars(counts).axes
    assert sum(patch.get_height() for patch in axes.patches) == 58
    both = thinkedit_figures.recovery_by_length(thinkedit_tables.paper_lengths())
    assert len(both.axes) == 2


def test_drawings_show_every_entity_and_ratio():
    edit = MINI[1]
    graph = graph_of_facts(edit.facts)
    states = dict.fromkeys(graph.edges, "kept")
    figure = graph_drawings.graph_pair(
        graph, edit.subject, edit.original, before=states, after=dict.fromkeys(graph.edges, "lost")
    )
    for axes in figure.axes:
        assert {text.get_text() for text in axes.texts} == {
            "Eiffel Tower",
            "Paris",
            "Seine",
            "France",
        }
    chains = [chain.nodes for chain in edit.chains]
    samples = graph_drawings.chain_samples(chains, [[0.25] * len(c) for c in edit.chains])
    ratios = [t.get_text() for t in samples.axes[0].texts if t.get_text() == "0.25"]
    assert len(ratios) == sum(len(chain) for chain in edit.chains)
