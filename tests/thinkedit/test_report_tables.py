"""ThinkEdit's tables and figures from small score tables; the paper's tables in the same form."""

import matplotlib
import networkx as nx
import numpy as np
import pandas as pd
import pytest

matplotlib.use("Agg")

from helpers.results.archive import About, ArchiveError, Run, archive
from helpers.results.text import published_table
from helpers.thinkedit import figures as thinkedit_figures
from helpers.thinkedit import graph_drawings, knowgic, tables, technique_tables
from helpers.thinkedit import report_tables as thinkedit_tables
from helpers.thinkedit.change_figures import paired_changes
from helpers.thinkedit.graph import graph_of_facts
from helpers.thinkedit.metrics import combine_steps
from helpers.thinkedit.report_tables import STEPS
from helpers.thinkedit.stored_scores import scores_of

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


def test_methods_with_app_are_set_beside_those_without(scores):
    after = scores[scores["mode"] != "before"]
    with_app = after[after["method"] == "rome"].assign(method="memit+app")
    found = thinkedit_tables.evaluate_scores(
        pd.concat([scores, with_app]), tables.chain_index(MINI), estimator="sampled"
    )
    plain, app = (
        technique_tables.technique_table(part, mode="independent").set_index("method")["IFR"]
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


def test_missing_results_say_how_to_make_them(evaluation):
    run = Run("m", About({"model": "m"}), {})
    with pytest.raises(ArchiveError, match=r"no table 'exact': publish it .* model: m"):
        scores_of([run], "exact")
    with pytest.raises(ArchiveError, match="'sequential'"):
        technique_tables.technique_table(evaluation, mode="sequential")


def test_the_papers_tables_have_the_same_form(evaluation):
    techniques, lengths = thinkedit_tables.paper_techniques(), thinkedit_tables.paper_lengths()
    assert techniques["method"].tolist() == list(thinkedit_tables.METHODS) * 2
    assert list(lengths.columns)[2:] == list(STEPS)
    merged = techniques.merge(lengths, on=["model", "method"])
    assert (merged["IFR"] == merged["overall"]).all()


def test_figures_draw_what_the_tables_say(evaluation):
    lengths = technique_tables.length_table(evaluation, mode="independent")
    (axes_of_ours,) = thinkedit_figures.recovery_by_length(lengths).axes
    axes = axes_of_ours
    assert axes.lines[0].get_ydata().tolist() == pytest.approx([1.0] * 5)
    techniques = technique_tables.technique_table(evaluation, mode="independent")
    (axes,) = thinkedit_figures.method_bars(techniques, "CKP", label="", finding="").axes
    assert [patch.get_height() for patch in axes.patches] == pytest.approx([1.0, 1.0])
    (axes,) = thinkedit_figures.recovery_against_preservation(techniques).axes
    assert len(axes.collections) == 2 * len(techniques)  # a bar each way
    both = pd.concat([techniques, techniques.iloc[:1].assign(model="z")])
    panels = thinkedit_figures.recovery_against_preservation(both).axes
    named = [text.get_text() for text in panels[-1].get_legend().get_texts()]
    assert (
        len(named) == techniques["method"].nunique() > 1
    )  # one of them is in the first panel only
    counts = thinkedit_tables.chain_counts(evaluation, mode="independent")
    (axes,) = thinkedit_figures.chain_counts_bars(counts).axes
    assert sum(patch.get_height() for patch in axes.patches) == 29  # what was deducible before
    assert axes.get_xticklabels()[0].get_text().startswith("1\nof ")
    both = thinkedit_figures.recovery_by_length(thinkedit_tables.paper_lengths(), finding="x")
    assert len(both.axes) == 2
    assert both.axes[0].get_ylim() == axes_of_ours.get_ylim()


def test_paired_changes_say_what_chance_explains(evaluation):
    pairs = technique_tables.against_mode(
        evaluation, evaluation, mode="independent", other_mode="independent"
    )
    changes = technique_tables.changes(pairs)
    assert (changes["mean"] == 0).all()
    assert (changes["before"] == changes["after"]).all()
    assert set(changes["verdict"]) == {"inconclusive"}
    figure = paired_changes(changes, finding="nothing changed")
    assert figure.get_suptitle() == "nothing changed"
    assert [len(axes.texts) for axes in figure.axes] == changes["measure"].value_counts().tolist()


def test_lengths_have_intervals_around_their_values(evaluation):
    plain = technique_tables.length_table(evaluation, mode="independent")
    table = technique_tables.length_table(evaluation, mode="independent", intervals=True)
    assert set(table) - set(plain) == {f"{s} {end}" for s in STEPS for end in ("low", "high")}
    pd.testing.assert_frame_equal(table[list(plain)], plain)
    known = table["overall low"].notna()
    assert (table["overall low"] <= table["overall"])[known].all()


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


def steps_of(table: str) -> pd.DataFrame:
    """IFR of a published table, a row per (model, method), a column per number of steps."""
    rows = published_table(table).query("metric == 'ifr'")
    return rows.pivot(index=["model", "method"], columns="steps", values="value")


def overall_by_definition_3(steps: pd.DataFrame, chains: pd.Series) -> pd.Series:
    counts = chains.sort_index()
    return steps[list(counts.index)].apply(lambda row: combine_steps(row, counts), axis=1)


def counted(table: str) -> pd.Series:
    return published_table(table).query("metric == 'chains'").set_index("steps")["value"]


def test_the_authors_overall_values_pool_their_chains_by_definition_3():
    steps = steps_of("thinkedit_scalability")
    assert len(steps) == 15
    overall = overall_by_definition_3(steps, counted("thinkedit_scalability"))
    assert (overall - steps["overall"]).abs().max() < 5e-4  # as far as they are printed
    unweighted = overall_by_definition_3(steps, pd.Series(1.0, list("12345")))
    assert (unweighted - steps["overall"]).abs().max() > 0.1  # as a mean of the lengths is not


def test_table_10_pools_all_chains_where_the_model_knows_nearly_all():
    steps = steps_of("thinkedit_table_10")
    overall = overall_by_definition_3(steps, counted("thinkedit_table_4"))
    off = (overall - steps["overall"]).abs().groupby("model").max()
    assert off["llama3-8b-instruct"] < 1.2e-3
    assert off["qwen2.5-7b-instruct"] > 0.05  # which answers 81 % of the questions: fewer chains


def test_the_authors_graph_has_the_chains_counted(data_folder):
    facts = pd.read_csv(data_folder / "knowgic" / "published" / "atomic_samples.csv")
    graph = nx.from_pandas_edgelist(
        facts, "beginning_object", "ending_object", create_using=nx.DiGraph
    )
    paths = nx.all_simple_paths(graph, "Harry Potter", "Hogwarts", cutoff=5)
    lengths = pd.Series([str(len(path) - 1) for path in paths]).value_counts()
    assert lengths.to_dict() == counted("thinkedit_scalability").to_dict()


def test_what_the_notebook_says_of_the_edits_is_stored(data_folder):
    """So that the quick profile needs none of the authors' files."""
    for run in archive("thinkedit").runs():
        edits = knowgic.load_edits(run.about.source["layout"])
        for kind, counted in (("chains", tables.chain_index), ("edits", tables.edit_index)):
            pd.testing.assert_frame_equal(run.tables[kind], counted(edits), check_dtype=False)


def test_the_repository_gives_other_numbers_than_the_paper():
    keys = ["model", "method"]
    paper = thinkedit_tables.paper_techniques().set_index(keys)
    repository = thinkedit_tables.repository_techniques().set_index(keys)
    assert list(repository.columns) == ["IFR", "CKP"]
    assert repository.loc[("llama3-8b-instruct", "alphaedit"), "IFR"] == 0.678
    assert paper.loc[("llama3-8b-instruct", "alphaedit"), "IFR"] == 0.5511
