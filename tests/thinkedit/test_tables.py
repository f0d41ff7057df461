"""ThinkEdit's tables and figures: small runs made by hand, and the published ones counted anew."""

import math
import re

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from helpers.results.archive import About, Archive, ArchiveError, Run, archive
from helpers.results.figure import published
from helpers.thinkedit import knowgic, tables
from helpers.thinkedit.deep import edit_index
from helpers.thinkedit.evaluation import caption_of, evaluate, facts_of, scores_of
from helpers.thinkedit.metrics import BY_MEAN, Known, chain_index

MINI = knowgic.load_edits("mini")
CHAINS = chain_index(MINI)
SOURCE = {"model": "m", "layout": "mini", "preset": "tuned", "dtype": "float32", "device": "cpu"}
KNOWGIC = ("gemma3-270m", "smollm2-135m")


def run_of(parts: dict[str, pd.DataFrame], chains: pd.DataFrame = CHAINS) -> Run:
    """A run with tables "KIND: METHOD, MODE"."""
    named = {
        part: table.assign(
            **dict(zip(("method", "mode"), part.split(": ")[1].split(", "), strict=True))
        )
        for part, table in parts.items()
    }
    return Run("m", About(SOURCE, {part: {} for part in parts}), {**named, "chains": chains})


@pytest.fixture
def sampled() -> dict[str, pd.DataFrame]:
    """Sampled counts of two methods on the packaged edits: one forgets nothing, one its subject."""
    rows = [(edit.case_id, item, 4, 0, 5) for edit in MINI for item, _ in enumerate(edit.facts)]
    before = pd.DataFrame(rows, columns=["case_id", "item", "hits", "new_hits", "n"])
    own = CHAINS.query("own")[["case_id", "item"]].drop_duplicates()
    lost = before.merge(own, how="left", indicator=True)["_merge"] == "both"
    return {
        "sampled: none, before": before,
        "sampled: memit, independent": before,
        "sampled: rome, independent": before.assign(hits=np.where(lost, 0, 4)),
    }


def evaluated(parts: dict[str, pd.DataFrame]):
    return evaluate((run_of(parts),), estimator="sampled")


def row(table: pd.DataFrame, method: str) -> pd.Series:
    return table.set_index("method").loc[method]


def test_an_edit_that_forgets_the_subjects_facts_is_deep_and_keeps_the_context(sampled):
    found = evaluated(sampled)
    table = tables.technique_table(found, mode="independent")
    assert table["method"].tolist() == ["memit", "rome"]
    assert table["IFR"].tolist() == pytest.approx([1.0, 0.0])
    assert table["CKP"].tolist() == pytest.approx([1.0, 1.0])
    assert table[["chains", "edits"]].to_numpy().tolist() == [[29, 3]] * 2
    text = tables.as_text(table)
    assert row(text, "memit")["IFR"] == "1.00 [1.00, 1.00]"
    assert not any(" low" in name or " high" in name for name in text)
    deep = row(tables.deep_table(found, mode="independent"), "rome")
    assert (deep["Deep-edited"], deep["edits"]) == (1.0, 3)
    counts = tables.chain_counts(found, mode="independent")
    assert counts.groupby("method")["chains"].sum().tolist() == [29, 29]
    assert counts.query("method == 'rome'")["active"].sum() == 0
    with pytest.raises(ArchiveError, match="'sequential'"):
        tables.technique_table(found, mode="sequential")


def test_lengths_have_intervals_around_their_values(sampled):
    found = evaluated(sampled)
    plain = tables.length_table(found, mode="independent")
    assert row(plain, "memit")[list(tables.STEPS)].tolist() == pytest.approx([1.0] * 6)
    assert row(plain, "memit")["chains"].startswith("29/")
    table = tables.length_table(found, mode="independent", intervals=True)
    pd.testing.assert_frame_equal(table[list(plain)], plain)
    known = table["overall low"].notna()
    assert (table["overall low"] <= table["overall"])[known].all()
    paper = tables.paper_lengths()
    assert list(paper.columns)[2:] == list(tables.STEPS)
    merged = tables.paper_techniques().merge(paper, on=["model", "method"])
    assert (merged["IFR"] == merged["overall"]).all()
    repository = tables.repository_techniques().set_index(["model", "method"])
    assert repository.loc[("llama3-8b-instruct", "alphaedit"), "IFR"] == 0.678


def test_differences_are_of_the_same_edits_and_corrected(sampled):
    found = evaluated(sampled)
    pairs = tables.against_method(found, "memit", mode="independent")
    assert list(pairs) == [("m", "rome")]
    table = tables.difference_table(pairs).set_index("measure")
    assert table.loc["IFR", "difference"].startswith("-1.00 [-1.00, -1.00]")
    assert table.loc["IFR", "edits"] == 3
    assert table.loc["IFR", "verdict"] == "inconclusive"  # three edits can show nothing
    assert tables.against_method(found, "prune", mode="independent") == {}
    same = tables.changes(
        tables.against_mode(found, found, mode="independent", other_mode="independent")
    )
    assert (same["mean"] == 0).all()
    assert (same["before"] == same["after"]).all()


def test_new_facts_are_counted_on_chains_beyond_the_edit_itself(sampled):
    found = evaluated(sampled)
    table = tables.new_fact_table(found, mode="independent").set_index("method")
    chains = found.chains.query("length > 1")
    for method, part in chains.groupby("method"):
        assert table.loc[method, "pooled_after"] == pytest.approx(part["wins_after"].mean())


def test_rules_state_how_much_is_known_under_each(exact_table):
    edit = MINI[1]
    facts = [
        (edit.case_id, "fact", i, -1.0 - i, 4, np.nan, np.nan, 0.0) for i in range(len(edit.facts))
    ]
    before = exact_table(*facts)
    run = run_of({"exact: none, before": before, "exact: rome, sequential": before})
    rules = [Known("named", 0.3), Known("named", 0.01), Known("mean", 0.3)]
    table = tables.rules_table([run], rules, ["rome"], mode="sequential")
    p = np.exp([-1.0 - i for i in range(len(edit.facts))])
    assert table["facts"].tolist() == [(p >= 0.3).sum(), (p >= 0.01).sum(), (p**0.25 >= 0.3).sum()]
    assert table["rule"].is_unique
    assert table["IFR rome"].dropna().tolist() == pytest.approx([1.0] * table["IFR rome"].count())


def scored(exact_table, method: str, mode: str, *rows: tuple) -> pd.DataFrame:
    return exact_table(*rows).assign(model="m", method=method, mode=mode)


def lead(case_id: int, by: float) -> tuple:
    return (case_id, "edit", 0, -3.0, 1, -3.0 + by, 1, np.nan)


def test_base_rates_count_what_the_unedited_model_answers(exact_table):
    before = scored(
        exact_table,
        *("none", "before"),
        (1, "fact", 0, -4.0, 2, np.nan, np.nan, -2.5),  # best of its kind
        (1, "fact", 1, -8.0, 2, np.nan, np.nan, -2.5),
        (1, "reverse", 0, np.log(0.06), 2, np.nan, np.nan, np.nan),
        (1, "reverse", 1, np.log(0.04), 2, np.nan, np.nan, np.nan),  # as a whole, under any rule
        (1, "yes_no", 0, -1.0, 1, -2.0, 1, np.nan),
        lead(1, -1.0),
    )
    rates = tables.base_rates(before, rule=BY_MEAN).set_index("form")
    assert rates["prompts"].to_dict() == {"fact": 2, "reverse": 2, "yes_no": 1}
    assert rates["answered"].to_dict() == {"fact": 0.5, "reverse": 0.5, "yes_no": 1.0}
    assert rates.loc["fact", "probability"] == pytest.approx((np.exp(-2) + np.exp(-4)) / 2)
    after = scored(
        exact_table,
        *("rome", "deep"),
        (1, "reverse", 0, np.log(0.12), 2, np.nan, np.nan, np.nan),
        (1, "yes_no", 0, -2.0, 1, -2.0, 1, np.nan),
    )
    forms = tables.other_forms_table(pd.concat([before, after]), mode="deep").set_index("form")
    assert forms.loc["reverse", ["before", "after", "n"]].tolist() == pytest.approx([0.06, 0.12, 1])
    assert forms.loc["yes_no", "before"] == pytest.approx(1 / (1 + np.exp(-1)))
    assert forms.loc["yes_no", "after"] == 0.5


def test_rates_and_texts_of_the_unedited_model():
    before = pd.DataFrame({"case_id": 1, "item": [0, 1], "hits": [3, 0], "new_hits": 0, "n": 5})
    before = before.assign(model="m", method="none", mode="before")
    assert tables.response_rates(before).iloc[0].tolist() == ["m", 2, 0.5, 0.3]
    rows = [("rome", "independent", 2.0), ("none", "before", 4.0), ("rome", "sequential", 9.0)]
    names = ["case_id", "fluency_averaged", "consistency", "model", "method", "mode"]
    cells = [(case, value + case, 0.5, "m", *of) for case in (0, 1) for *of, value in rows]
    table = tables.text_table(pd.DataFrame(cells, columns=names), mode="independent")
    assert table["method"].tolist() == ["none", "rome"]
    assert table[["fluency", "n"]].to_numpy().tolist() == [[4.5, 2], [2.5, 2]]


def negations(method: str, mode: str, case_id: int, *leads: float) -> pd.DataFrame:
    """One edit's probes; each lead is of *yes* over *no*, or of the new over the original object."""
    table = pd.DataFrame(list(tables.ASKED), columns=["form", "item"])
    cloze = table["form"].isin(["edit", "negated"])
    signed = np.where(cloze, 1, -1) * np.asarray(leads)
    scores = {"case_id": case_id, "original_named": -5.0, "other_named": -5.0 + signed}
    return table.assign(**scores, model="m", method=method, mode=mode)


def test_what_an_edit_does_to_the_negated_fact_is_tested():
    even, sure = [0.0] * 4, np.log(9)
    before = [negations("none", "before", case_id, -2, -2, *even) for case_id in range(1, 9)]
    taken = [negations("rome", "independent", case_id, 3, 3, *even) for case_id in range(1, 9)]
    taken[0] = negations("rome", "independent", 1, 3, -3, -sure, sure, sure, -sure)
    scores = pd.concat([*before, *taken], ignore_index=True)
    table = tables.negation_table(scores, mode="independent").set_index("asked")
    assert list(table.index) == list(tables.ASKED.values())
    assert (table["n"] == 8).all()
    plain, negated, true, *_ = table.to_dict("records")
    assert (plain["change"][:5], plain["Holm"]) == ("+1.00", "more")
    assert negated["after"].startswith("0.88 [")
    assert (true["before"], true["after"][:4]) == ("0.50 [0.50, 0.50]", "0.45")
    assert true["Holm"] == "inconclusive"
    with pytest.raises(ArchiveError, match="no results of mode 'deep'"):
        tables.negation_table(scores, mode="deep")


def test_the_null_takes_every_two_draws_both_ways(sampled):
    base = sampled["sampled: none, before"].assign(model="m")
    draws = [base.assign(hits=hits, seed=seed) for seed, hits in enumerate((4, 4, 2))]
    table = tables.null_table(pd.concat(draws), CHAINS).set_index("measure")
    assert table["pairs"].tolist() == [6, 6]
    # Facts of 4/5 before and 2/5 after halve, or the other way round; equal draws stay.
    assert table.loc["CKP", ["low", "high"]].tolist() == pytest.approx([0.5, 2.0])
    assert table.loc["CKP", "mean"] == pytest.approx((1 + 1 + 0.5 + 0.5 + 2 + 2) / 6)
    rows = [(0, "cloze", 0.5, 0.6, 0.8, 100), (1, "cloze", 0.1, 0.1, 0.2, 100)]
    names = ["fact", "form", "exact", "begins", "mentions", "n"]
    later = tables.later_mentions(pd.DataFrame(rows, columns=names).assign(model="m"))
    assert later[["begins", "mentions", "apart"]].iloc[0].tolist() == pytest.approx([0.35, 0.5, 2])


def test_missing_results_name_how_to_make_them(sampled):
    with pytest.raises(ArchiveError, match=r"no table 'exact': publish it .* model: m"):
        scores_of([run_of(sampled)], "exact")
    run = archive("thinkedit").get("smollm2-135m")
    with pytest.raises(ArchiveError, match="no exact scores of kn, independent"):
        facts_of(run, "kn", mode="independent")


def test_knowgics_tables_are_what_the_files_hold(data_folder):
    table = tables.chain_length_table()
    assert table.loc["paper"].tolist() == [21, 72, 110, 158, 205, 566]
    for layout in knowgic.LAYOUTS:
        lengths = [len(chain) for edit in knowgic.load_edits(layout) for chain in edit.chains]
        counts = [lengths.count(steps) for steps in range(1, 6)]
        assert table.loc[layout].tolist() == [*counts, len(lengths)]
    questions = tables.packaged("base_questions")
    assert set(questions["subject"]) == {edit.subject for edit in knowgic.load_edits("2025-06")}
    for run in archive("thinkedit").runs():
        edits = knowgic.load_edits(run.about.source["layout"])
        for kind, counted in (("chains", chain_index), ("edits", edit_index)):
            pd.testing.assert_frame_equal(run.tables[kind], counted(edits), check_dtype=False)


@pytest.mark.parametrize(
    ("model", "method", "left", "edits"),
    [
        ("smollm2-135m", "memit", 23, 240),
        ("smollm2-135m", "ft-m", 129, 240),
        ("gemma3-270m", "memit", 27, 99),
    ],
)
def test_what_published_edits_leave(model, method, left, edits):
    """Counted from the stored log-probabilities, chain by chain."""
    run = archive("thinkedit").get(f"{model}_recalled-{model}")
    own = run.tables[f"exact: {method}, independent"]
    facts = own[own["form"] == "fact"].set_index(["case_id", "item"])["original_named"]
    known = set(facts.index[np.exp(facts) >= 0.05])
    chains = run.tables["chains"].groupby(["case_id", "chain"])["item"].agg(list)
    longer = chains[
        (chains.map(len) > 1) & chains.index.isin(facts.index.unique("case_id"), level=0)
    ]
    whole = {case for (case, _), items in longer.items() if {(case, i) for i in items} <= known}
    assert (len(whole), longer.index.unique("case_id").size) == (left, edits)
    found = tables.deep_table(evaluate((run,)), mode="independent")
    assert row(found, method)["Deep-edited"] == pytest.approx(1 - left / edits)


@pytest.mark.parametrize("model", ["smollm2-135m", "gemma3-270m"])
def test_facts_are_counted_by_what_they_are_about(model):
    name = f"recalled-{model}"
    run = archive("thinkedit").get(f"{model}_{name}")
    facts = facts_of(run, "memit", mode="independent").set_index(["case_id", "item"])
    kinds = list(tables.KINDS.values())
    ratios: dict[str, list[float]] = {kind: [] for kind in kinds}
    for edit in knowgic.load_edits(name):
        for item, fact in enumerate(edit.facts):
            if (edit.case_id, item) in facts.index:
                one = facts.loc[(edit.case_id, item)]
                own = fact.subject.casefold() == edit.subject.casefold()
                direct = edit.direct_fact is not None and fact.key == edit.direct_fact.key
                kind = kinds[0 if direct else 1 if own else 2]
                ratios[kind] += [one["after"] / one["before"]] * bool(one["known_before"])
    found = row(tables.subject_table([run], mode="independent"), "memit")
    assert found["facts"] == "/".join(str(len(ratios[kind])) for kind in kinds)
    left = [float(found[kind].split()[0]) for kind in kinds]
    assert left == pytest.approx([np.mean(ratios[kind]) for kind in kinds], abs=0.0051)
    # The finding that notebook 06 states.
    assert left[0] < 0.05 < left[2]
    assert left[1] < left[2] / 2


def deducible(model: str) -> tuple[int, int, int]:
    """Chains all of whose facts the unedited model knows, those of three steps or more, and all."""
    stored = archive("thinkedit").get(model).tables
    facts = stored["exact: none, before"].query("form == 'fact'")
    best = facts[["rival_sum", "other_sum"]].max(axis=1)
    known = (facts["original_named"] >= math.log(0.05)) | (facts["original_sum"] > best)
    columns = ["case_id", "item"]
    steps = stored["chains"].merge(facts.assign(known=known)[[*columns, "known"]], on=columns)
    chains = steps.groupby(["case_id", "chain"])["known"].agg(["all", "size"])
    long = chains["all"] & (chains["size"] >= 3)
    return int(chains["all"].sum()), int(long.sum()), len(chains)


def test_titles_of_published_figures_are_what_is_stored():
    """Every figure of stored tables is drawn; two of their findings are counted anew."""
    told = {}
    for name, entry in published(chapter="06").items():
        figure = entry.draw()
        told[name] = figure.get_suptitle() + " " + figure.get_supxlabel()
        plt.close(figure)
    counts = [deducible(model) for model in KNOWGIC]
    active = [*(count[0] for count in counts), counts[0][2]]
    assert [int(n) for n in re.findall(r"\d+", told["06_active_chains"])][:3] == active
    lengths = [int(n) for n in re.findall(r"\d+", told["06_ifr_by_length"])][:2]
    assert lengths == [sum(c[1] for c in counts), sum(c[0] for c in counts)]
    assert "KnowGIC 2025-06, 21 edits, preset tuned" in " ".join(told["06_active_chains"].split())


def test_a_run_of_ones_own_has_its_figures(tmp_path, exact_table):
    """Which figures a run gives depends on its methods, modes and edits."""
    facts = [
        (edit.case_id, "fact", i, -0.5, 1, np.nan, np.nan, -9)
        for edit in MINI
        for i, _ in enumerate(edit.facts)
    ]
    rows = exact_table(*facts, *(lead(edit.case_id, 1.0) for edit in MINI))
    parts = {"exact: none, before": rows, "exact: rome, sequential": rows}
    alone = {"06_paper_ifr_by_length", "06_reading"}
    assert set(published(tmp_path, chapter="06")) == alone
    run = run_of(parts)
    into = Archive(tmp_path / "thinkedit")
    into.put("m", run.tables, run.about)
    drawn = {name: entry.draw() for name, entry in published(tmp_path, chapter="06").items()}
    plt.close("all")
    assert set(drawn) - alone == {
        "06_active_chains",
        "06_ckp",
        "06_ifr_against_ckp",
        "06_ifr_by_length",
    }
    assert (
        caption_of([into.get("m")], "x")
        == "ours: m, edits of mini, 3 edits, preset tuned, float32 on cpu, x"
    )
