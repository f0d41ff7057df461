"""ThinkEdit's tables and figures: small runs made by hand, and the published ones counted anew."""

import math

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from helpers.paths import PACKAGED
from helpers.results.archive import HALF_SHOWN, About, Archive, ArchiveError, Run, archive
from helpers.results.figure import published_figures
from helpers.results.statistics import paired
from helpers.results.text import with_interval
from helpers.thinkedit import knowgic, metrics, tables
from helpers.thinkedit.metrics import BY_RANK, DEFAULT, OWN, Known, chain_index
from helpers.thinkedit.modes import SEQUENCES
from helpers.thinkedit.shown import split_graphs
from helpers.thinkedit.tables import caption_of_runs, facts_of, terms_of_runs

MINI = knowgic.load_edited_graphs("mini")
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
    return terms_of_runs((run_of(parts),), estimator="sampled")


def row(table: pd.DataFrame, method: str) -> pd.Series:
    return table.set_index("method").loc[method]


def test_an_edit_that_forgets_the_subjects_facts_is_deep_and_keeps_the_context(sampled):
    found = evaluated(sampled)
    table = tables.technique_table(found, mode="independent")
    assert table["method"].tolist() == ["memit", "rome"]
    assert table["IFR"].tolist() == pytest.approx([1.0, 0.0])
    assert table["CKP"].tolist() == pytest.approx([1.0, 1.0])
    assert table[["IFR terms", "IFR edits"]].to_numpy().tolist() == [[29, 3]] * 2
    text = row(tables.as_text(table).table, "memit")
    assert text["IFR"] == "1.00 [0.24, 1.00]"  # three edits show little
    assert text["IFR, the paper's pooling"].startswith("1.00 (1.00 to 1.00; ")
    assert text["n IFR"] == "3 (29)"
    assert not any(" low" in name or " high" in name for name in text.index)
    deep = row(tables.deep_table(found, mode="independent"), "rome")
    assert (deep["Deep-edited"], deep["Deep-edited edits"]) == (1.0, 3)
    with pytest.raises(ArchiveError, match="'sequential'"):
        tables.technique_table(found, mode="sequential")


def test_lengths_have_intervals_around_their_values(sampled):
    found = evaluated(sampled)
    table = tables.length_table(found, mode="independent")
    assert row(table, "memit")[list(tables.STEPS)].tolist() == pytest.approx([1.0] * 6)
    assert row(table, "memit")["overall terms"] == 29
    known = table["overall low"].notna()
    assert (table["overall low"] <= table["overall"])[known].all()
    paper = tables.paper_lengths()
    assert list(paper.columns)[2:] == [*tables.STEPS, tables.LONGER]
    merged = tables.paper_techniques().merge(paper, on=["model", "method"])
    assert (merged["IFR"] == merged["overall"]).all()
    printed = tables.paper_techniques("thinkedit_repository")
    repository = printed.set_index(["model", "method"])
    assert repository.loc[("llama3-8b-instruct", "alphaedit"), "IFR"] == 0.678


def test_differences_are_of_the_same_edits_and_corrected(sampled):
    found = evaluated(sampled)
    table = tables.difference_table(found, found, mode="independent", than="memit").table
    assert set(table["method"]) == {"rome"}
    table = table.set_index("measure")
    assert table.loc["IFR", "difference"].startswith("-1.00 [-1.00, +1.00]")
    assert table.loc["IFR", "edits"] == 3
    assert table.loc["IFR", "verdict"] == "inconclusive"  # three edits can show nothing
    assert tables.difference_table(found, found, mode="independent", than="prune").table.empty
    same = tables.difference_table(found, found, mode="independent").table
    assert (same["difference"].str[:5] == "+0.00").all()


def lead(case_id: int, by: float) -> tuple:
    return (case_id, "edit", 0, -3.0, 1, -3.0 + by, 1, np.nan)


def test_texts_are_averaged_over_edits():
    rows = [("rome", "independent", 2.0), ("none", "before", 4.0), ("rome", "sequential", 9.0)]
    names = ["case_id", "fluency_averaged", "consistency", "method", "mode"]
    cells = [(case, value + case, 0.5, *of) for case in (0, 1) for *of, value in rows]
    texts = pd.DataFrame(cells, columns=names)
    table = tables.text_table([Run("m", About(SOURCE), {"texts": texts})], mode="independent")
    assert table["method"].tolist() == ["none", "rome"]
    assert table[["fluency", "n"]].to_numpy().tolist() == [[4.5, 2], [2.5, 2]]


def test_missing_results_name_how_to_make_them(sampled):
    with pytest.raises(ArchiveError, match=r"no table 'texts': publish it .* model: m"):
        tables.text_table([run_of(sampled)], mode="independent")
    run = archive("thinkedit").get("smollm2-135m")
    with pytest.raises(ArchiveError, match="no exact scores of kn, independent"):
        facts_of(run, "kn", mode="independent")


def test_knowgics_tables_are_what_the_files_hold(data_folder):
    table = tables.chain_length_table()
    assert table.loc["paper"].tolist() == [21, 72, 110, 158, 205, 566]
    for layout in knowgic.LAYOUTS:
        lengths = [
            len(chain) for edit in knowgic.load_edited_graphs(layout) for chain in edit.chains
        ]
        counts = [lengths.count(steps) for steps in range(1, 6)]
        assert table.loc[layout].tolist() == [*counts, len(lengths)]
    questions = pd.read_csv(PACKAGED / "thinkedit" / "base_questions.csv")
    assert set(questions["subject"]) == {
        edit.subject for edit in knowgic.load_edited_graphs("2025-06")
    }
    for run in archive("thinkedit").runs():
        edits = knowgic.load_edited_graphs(run.about.source["layout"])
        if run.name.endswith(f"@{HALF_SHOWN}"):
            edits, _ = split_graphs(edits)
        held = run.tables["chains"]
        pd.testing.assert_frame_equal(held, chain_index(edits), check_dtype=False)


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
    found = tables.deep_table(terms_of_runs((run,)), mode="independent")
    assert row(found, method)["Deep-edited"] == pytest.approx(1 - left / edits)


@pytest.mark.parametrize("model", ["smollm2-135m", "gemma3-270m"])
def test_facts_are_counted_by_what_they_are_about(model):
    name = f"recalled-{model}"
    run = archive("thinkedit").get(f"{model}_{name}")
    facts = facts_of(run, "memit", mode="independent").set_index(["case_id", "item"])
    kinds = list(tables.FACT_KINDS)
    ratios: dict[str, list[float]] = {kind: [] for kind in kinds}
    for edit in knowgic.load_edited_graphs(name):
        for item, fact in enumerate(edit.facts):
            if (edit.case_id, item) in facts.index:
                one = facts.loc[(edit.case_id, item)]
                own = fact.subject.casefold() == edit.subject.casefold()
                direct = edit.direct_fact is not None and fact.key == edit.direct_fact.key
                kind = kinds[0 if direct else 1 if own else 2]
                ratios[kind] += [one["after"] / one["before"]] * bool(one["known_before"])
    found = row(tables.measure_table(terms_of_runs((run,)), kinds, mode="independent"), "memit")
    assert [found[f"{kind} terms"] for kind in kinds] == [len(ratios[kind]) for kind in kinds]
    pooled = [found[f"{kind} pooled"].ratio for kind in kinds]
    assert pooled == pytest.approx([np.mean(ratios[kind]) for kind in kinds])
    left = [found[kind] for kind in kinds]
    # The finding that notebook 06 states.
    assert left[0] < 0.05 < left[2]
    assert left[1] < left[2] / 2


def deducible(model: str) -> int:
    """Chains all of whose facts the unedited model gives a probability of at least 0.05."""
    stored = archive("thinkedit").get(model).tables
    facts = stored["exact: none, before"].query("form == 'fact'")
    known = facts["original_named"] >= math.log(0.05)
    columns = ["case_id", "item"]
    steps = stored["chains"].merge(facts.assign(known=known)[[*columns, "known"]], on=columns)
    chains = steps.groupby(["case_id", "chain"])["known"].all()
    return int(chains.sum())


def test_no_ratio_of_an_improbable_fact_is_set_next_to_the_paper():
    """Known by rank alone, a fact can become a million times as probable; by probability 20 times."""
    for model in KNOWGIC:
        run = archive("thinkedit").get(model)
        ratios = terms_of_runs((run,)).query("measure in ['IFR', 'CKP']")
        assert ratios["ratio"].max() < 1 / DEFAULT.threshold
        by_rank = terms_of_runs((run,), rule=BY_RANK).query("measure in ['IFR', 'CKP']")
        assert by_rank["ratio"].max() > 100


def test_harry_potters_edit_is_what_qwens_pooled_ifr_rests_on():
    found = terms_of_runs((archive("thinkedit").get("qwen2.5-coder-1.5b"),), rule=BY_RANK)
    longer = row(tables.length_table(found, mode="independent"), "rome")
    pooled = longer[f"{tables.LONGER} pooled"]
    assert pooled.ratio == pytest.approx(0.307, abs=0.001)
    assert (pooled.low, pooled.share) == (
        pytest.approx(0.0025, abs=1e-4),
        pytest.approx(1, abs=0.01),
    )
    assert longer[tables.LONGER] == pytest.approx(0.057, abs=0.001)


def test_app_is_shown_with_its_price():
    run = archive("thinkedit").get("smollm2-135m_recalled-smollm2-135m")
    plain, with_app = tables.split_app(terms_of_runs((run,)))
    table = tables.app_table(plain, with_app, mode="independent")
    assert set(table["IFR edits"]) == {40}  # the same edits on both sides
    prices = table.set_index(["method", "APP"])["Efficacy"].to_dict()
    wanted = {("rome", "with"): 0.55, ("memit", "with"): 0.725}
    wanted |= {("rome", "without"): 1.0, ("memit", "without"): 1.0}
    assert prices == pytest.approx(wanted)
    successful = table.set_index(["method", "APP"])[f"{metrics.SUCCESSFUL} edits"]
    assert successful["rome", "with"] == 22
    tested = tables.difference_table(
        with_app, plain, mode="independent", measures=tables.PRICE
    ).table.set_index(["method", "measure"])
    assert tested.loc[("rome", metrics.SUCCESSFUL), "edits"] == 22
    assert tested.loc[("rome", "Efficacy"), "Holm"] == "less"


@pytest.mark.slow
def test_intervals_by_wording_are_of_edits_that_share_a_prompt():
    run = archive("thinkedit").get("smollm2-135m_recalled-smollm2-135m")
    cells = row(tables.wording_table([run]).table, "memit")
    assert cells["CKP, by wording"].endswith("(13)")
    interval = cells["CKP, by wording"].removesuffix(" (13)").partition(" ")[2]
    ends = interval.strip("[]").split(", ")
    low, high = map(float, ends)
    over_edits = row(
        tables.measure_table(
            terms_of_runs((archive("thinkedit").get("smollm2-135m_recalled-smollm2-135m"),)),
            ["CKP"],
            mode="independent",
        ),
        "memit",
    )
    assert high - low > over_edits["CKP high"] - over_edits["CKP low"]


def test_the_authors_repository_is_shown_as_it_prints():
    table = tables.scalability_table().set_index(["model", "method"])
    assert len(table) == 16
    assert table.loc[("chains", ""), ["1", "2", "3", "4", "5", "overall"]].tolist() == [
        1,
        19,
        40,
        34,
        6,
        100,
    ]
    alphaedit = table.loc[("llama3-8b-instruct", "alphaedit")]
    assert alphaedit[["overall", "1", "5", "CKP"]].tolist() == [0.678, 0.342, 0.478, 0.9001]


def test_what_the_unedited_models_know_is_next_to_the_papers_base_rates():
    table = tables.known_table([archive("thinkedit").get(model) for model in KNOWGIC])
    table = table.set_index("model")
    named = table["named once in five"]
    assert named["smollm2-135m"].startswith("0.15 [")
    assert named["gemma3-270m"].startswith("0.26 [")
    assert named[["llama3-8b-instruct, the paper", "qwen2.5-7b-instruct, the paper"]].tolist() == [
        "0.95",
        "0.81",
    ]
    chains = {model: f"{deducible(model)} of 558" for model in KNOWGIC}
    assert table["chains of at least 0.05"][list(KNOWGIC)].to_dict() == chains


def test_all_forms_of_a_question_are_of_the_same_facts():
    run = archive("thinkedit").get("smollm2-135m")
    table = row(tables.form_table([run], mode="independent"), "none")
    scores = run.tables["exact: none, before"].set_index(["form", "case_id", "item"])
    backwards, affirmed = scores.loc["reverse"], scores.loc["yes_no"]
    forwards = scores.loc["fact"].loc[backwards.index]
    assert (table["facts"], table["edits"]) == (106, 21)
    by_edit = np.exp(forwards["original_named"]).groupby("case_id").mean()
    assert table["object asked"] == pytest.approx(by_edit.mean())
    yes = (affirmed["original_sum"] > affirmed["other_sum"]).groupby("case_id").mean()
    assert table["yes or no"] == pytest.approx(yes.mean())


def test_a_second_draw_is_the_floor_of_every_mode(sampled):
    """Two draws of one model differ; what the second keeps is no method's loss."""
    again = sampled["sampled: none, before"].assign(hits=3)
    found = evaluated({**sampled, "sampled: none, again": again})
    table = tables.technique_table(found, mode="independent")
    assert row(table, tables.UNEDITED_AGAIN)["CKP"] == pytest.approx(3 / 4)
    assert table["method"].tolist()[0] == tables.UNEDITED_AGAIN
    less = tables.difference_table(
        found, found, mode="independent", than=tables.UNEDITED_AGAIN
    ).table
    assert set(less["method"]) == {"memit", "rome"}


def test_an_edit_is_compared_with_its_placebo(sampled):
    parts = {**sampled, "sampled: rome, placebo": sampled["sampled: none, before"]}
    table = tables.placebo_differences(evaluated(parts)).table.set_index(["method", "measure"])
    assert table.loc[("rome", "IFR"), "difference"].startswith("-1.00 ")
    assert table.loc[("rome", "CKP"), "difference"].startswith("+0.00 ")
    assert set(table.index.get_level_values("method")) == {"rome"}
    with pytest.raises(ArchiveError, match=r"modes: \[independent, placebo\]"):
        tables.placebo_differences(evaluated(sampled))


def test_placebos_are_rows_next_to_their_editors_and_named_in_a_sentence(sampled):
    lost_half = sampled["sampled: none, before"].assign(hits=2)
    parts = {**sampled, "sampled: rome, placebo": lost_half}
    found = evaluated(parts)
    table = tables.technique_table(tables.with_placebos(found), mode="independent")
    assert table["method"].tolist() == ["memit", "rome", "rome, placebo"]
    assert row(table, "rome, placebo")["CKP"] == pytest.approx(1 / 2)
    assert row(table, "rome")["CKP"] == pytest.approx(1.0)
    (line,) = tables.placebo_lines(found)
    assert line.startswith("m, mini: a foreign edit of ROME gives IFR 0.")
    assert "CKP 0.50 [" in line
    assert line.endswith("(n = 3)")


def test_without_placebos_nothing_is_said_of_them(sampled):
    found = evaluated(sampled)
    assert tables.placebo_lines(found) == []
    pd.testing.assert_frame_equal(tables.with_placebos(found), found)


def test_sequences_are_shown_by_order_where_there_are_several(sampled):
    names = ("memit, sequential", "rome, sequential", "rome, sequential 2")
    half = sampled["sampled: none, before"].assign(hits=2)
    lost = sampled["sampled: rome, independent"]
    parts = dict(zip((f"sampled: {name}" for name in names), (half, lost, half), strict=True))
    found = evaluated({"sampled: none, before": sampled["sampled: none, before"], **parts})
    table = tables.as_text(tables.orders_table(found)).table
    assert table[["method", "order"]].to_numpy().tolist() == [["rome", 1], ["rome", 2]]
    steps = CHAINS.groupby(["case_id", "chain"])["step"].max()
    sums = pd.DataFrame({"left": 0.5**steps / steps**0.5, "weight": steps**-0.5})
    of_edits = sums.groupby("case_id").sum()
    halved = (of_edits["left"] / of_edits["weight"]).mean()
    assert tables.order_lines(found) == [
        f"m, mini, ROME, over 2 orders: IFR 0.00 to {halved:.2f} (range {halved:.2f}),"
        " CKP 0.50 to 1.00 (range 0.50)",
        "every other sequence: one order",
    ]
    one = found[found["mode"] == "sequential"]
    assert tables.orders_table(one).empty
    assert tables.order_lines(one) == ["every sequence: one order"]


def terms_of_edits(*ratios: float, model: str = "m", method: str = "rome", measure: str = "CKP"):
    """An evaluation with one term for each edit."""
    keys = {"model": model, "method": method, "mode": "independent", "measure": measure}
    edits = range(len(ratios))
    return pd.DataFrame({"edit": edits, "ratio": ratios}).assign(length=1, weight=1.0, **keys)


def sequences_of(**ckp: list[list[float]]) -> pd.DataFrame:
    """An evaluation of sequences: of each method, the edits' CKP after each order."""
    parts = []
    for name, orders in ckp.items():
        for mode, ratios in zip(SEQUENCES, orders, strict=False):
            of_order = terms_of_edits(*ratios, method=name.replace("_", "-"))
            parts.append(of_order.assign(mode=mode))
    return pd.concat(parts, ignore_index=True)


def test_a_difference_between_sequences_holds_if_every_pair_of_orders_shows_it():
    """Six edits that change by one sign have p = 2/64, which is not significant as one of two tests."""
    low, middle, high = [0.1] * 6, [0.5] * 6, [0.9] * 6
    found = sequences_of(memit=[middle, low], alphaedit=[high], ft_m=[[0.0] * 6, middle])
    shown = tables.order_differences(found, than="memit").table.set_index("method")
    assert set(shown["measure"]) == {"CKP"}
    assert shown["pairs"].to_dict() == {"alphaedit": 2, "ft-m": 4}
    assert shown[["lowest", "highest"]].to_numpy().tolist() == [
        ["+0.40", "+0.80"],
        ["-0.50", "+0.40"],
    ]
    assert shown["verdict"].tolist() == [
        "more",
        "inconclusive",
    ]  # FT-M's is more and less by the order
    assert shown["Holm"].tolist() == ["inconclusive", "inconclusive"]  # 2/64, one of two tests
    alone = sequences_of(memit=[middle, low], alphaedit=[high])
    assert tables.order_differences(alone, than="memit").table["Holm"].tolist() == ["more"]
    one_pair_fails = sequences_of(memit=[middle, high], alphaedit=[high])
    (verdict,) = tables.order_differences(one_pair_fails, than="memit").table["verdict"]
    assert verdict == "inconclusive"
    one_order = sequences_of(memit=[middle], alphaedit=[high])
    assert tables.order_differences(one_order, than="memit").table.empty


def difference(first: list[float], second: list[float], measure: str = "CKP") -> pd.Series:
    before, after = (terms_of_edits(*ratios, measure=measure) for ratios in (first, second))
    shown = tables.difference_table(after, before, mode="independent", measures=[measure])
    return shown.table.iloc[0]


def test_differences_are_tested_by_exact_sign_flips_with_the_interval_of_their_kind():
    """Six changes of one sign have p = 2/64, five 2/32; equal changes have an interval all the same."""
    six = difference([0.0] * 6, [0.5] * 6)
    assert (six["difference"][:6], six["edits"], six["verdict"]) == ("+0.50 ", 6, "more")
    assert difference([0.0] * 5, [0.5] * 5)["verdict"] == "inconclusive"
    for kind, measure in (("fraction", "CKP"), ("share", "Efficacy")):
        cell = difference([0.0] * 30, [1.0] * 6 + [0.0] * 24, measure)["difference"]
        wanted = paired(np.zeros(30), np.array([1.0] * 6 + [0.0] * 24), kind)
        assert cell == with_interval(wanted.difference, signed=True)
    lone = difference([0.0] * 21, [1e6] + [0.0] * 20)  # a ratio of a million counts as 1
    assert lone["difference"].startswith("+0.05 ")
    assert lone["verdict"] == "inconclusive"


def test_a_family_of_tests_is_one_measure_of_one_model():
    """p = 2/64 survives alone, not as one of two; another model and measure have their own families."""

    def both(ratio: float) -> pd.DataFrame:
        alone = terms_of_edits(*[ratio] * 6, model="a")
        two = [terms_of_edits(*[ratio] * 6, model="b", method=m) for m in ("rome", "ft-m")]
        other = terms_of_edits(*[ratio] * 6, model="b", measure="IFR")
        return pd.concat([alone, *two, other])

    table = tables.difference_table(both(0.5), both(0.0), mode="independent").table
    assert (table["verdict"] == "more").all()
    survives = table.set_index(["model", "method", "measure"])["Holm"]
    assert survives["a", "rome", "CKP"] == survives["b", "rome", "IFR"] == "more"
    assert survives["b", "rome", "CKP"] == survives["b", "ft-m", "CKP"] == "inconclusive"


def test_prune_is_not_counted_again_where_it_is_memit():
    run = archive("thinkedit").get("smollm2-135m_recalled-smollm2-135m")
    found = tables.split_app(terms_of_runs((run,)))[0]
    alone = tables.longer_table(found, mode="independent").table
    assert {"memit"} == {"memit", "prune"} & {*alone["method"]}
    sequences = tables.longer_table(found, mode="sequential").table
    assert {"memit", "prune"} <= {*sequences["method"]}


@pytest.mark.slow
def test_the_published_orders_decide_what_notebook_06_claims_of_sequences():
    run = archive("thinkedit").get("smollm2-135m_recalled-smollm2-135m")
    found = tables.split_app(terms_of_runs((run,)))[0]
    order_count = tables.orders_table(found).groupby("method")["order"].size()
    assert order_count.to_dict() == {"ft-m": 3, "memit": 3}
    compared = tables.order_differences(found, than="memit").table.query("measure == 'CKP'")
    holds = compared.set_index("method")["Holm"]
    assert holds["alphaedit"] == "more"
    assert set(holds[["ft-m", "mend", "prune-added"]]) == {"less"}
    assert set(holds[["rect", "rome", "prune"]]) == {"inconclusive"}
    in_one_order = tables.difference_table(found, found, mode="sequential", than="memit").table
    rect = in_one_order.set_index(["method", "measure"]).loc[("rect", "CKP")]
    assert rect["Holm"] == "more"  # and does not survive the others


def test_the_published_placebos_are_of_four_editors():
    run = archive("thinkedit").get("smollm2-135m_recalled-smollm2-135m")
    found = tables.split_app(terms_of_runs((run,)))[0]
    differences = tables.placebo_differences(found).table
    edit_counts = differences.query("measure == 'IFR'").set_index("method")["edits"]
    assert edit_counts.to_dict() == {"memit": 40, "rome": 100, "ft-m": 250, "mend": 250}
    assert set(differences["Holm"]) == {"less"}
    (line,) = (line for line in tables.placebo_lines(found) if "ROME" in line)
    assert "IFR 0.96 [0.93, 0.98] (n = 100)" in line


def test_mend_is_called_undertrained_wherever_it_has_a_row():
    run = archive("thinkedit").get("smollm2-135m_recalled-smollm2-135m")
    found = tables.split_app(terms_of_runs((run,)))[0]
    others = found[found["method"] != "mend"]
    for terms, noted in ((found, True), (others, False)):
        shown = [
            tables.as_text(tables.technique_table(terms, mode="independent")),
            tables.difference_table(terms, terms, mode="independent", than="memit"),
        ]
        notes = [table.note for table in shown]
        assert all((tables.UNDERTRAINED in note) == noted for note in notes)


def test_the_threshold_for_known_facts_is_the_readers():
    run = archive("thinkedit").get("gemma3-270m")
    default = tables.known_table([run])
    assert default.columns[1] == "facts of at least 0.05"
    pd.testing.assert_frame_equal(default, tables.known_table([run], rule=Known()))
    half = tables.known_table([run], rule=Known(0.5))
    few = half["facts of at least 0.5"].iloc[0], default["facts of at least 0.05"].iloc[0]
    assert [int(cell.split()[0]) for cell in few] == sorted(int(cell.split()[0]) for cell in few)
    assert few[0] != few[1]


@pytest.mark.slow
def test_titles_of_published_figures_are_what_is_stored():
    """Every figure of stored tables is drawn; what its title claims is made anew here."""
    titles = {}
    for name, entry in published_figures(chapter="06").items():
        figure = entry.draw()
        titles[name] = " ".join(figure.get_suptitle().split())
        plt.close(figure)
    models = ("smollm2-135m", "gemma3-270m", "qwen2.5-coder-1.5b")
    runs = [archive("thinkedit").get(f"{model}_recalled-{model}") for model in models]
    terms = tables.split_app(terms_of_runs(tuple(runs)))[0]
    left = tables.measure_table(terms, (OWN, "CKP"), mode="independent").set_index("method")
    for method, of_method in left.groupby(level=0):
        subject_first = (of_method[f"{OWN} high"] < of_method["CKP low"]).all()
        assert subject_first == (method not in ("ft-m", "mend"))
        assert subject_first != (of_method[f"{OWN} low"] > of_method["CKP high"]).all()
    assert titles["06_what_is_left"] == (
        "AlphaEdit, MEMIT, RECT and ROME erase more facts about the edited subject; FT-M and MEND erase"
        " more facts about other subjects"
    )
    verdicts = tables.longer_table(terms, mode="independent").table["Holm"]
    counts = f"for {(verdicts == 'more').sum()} of {len(verdicts)} pairs"
    assert counts in titles["06_direct_against_chains"]


def test_a_run_of_ones_own_has_its_figures(tmp_path, exact_table):
    """Which figures a run gives depends on its methods, modes and edits."""
    facts = [
        (edit.case_id, "fact", i, -0.5, 1, np.nan, np.nan, -9)
        for edit in MINI
        for i, _ in enumerate(edit.facts)
    ]
    rows = exact_table(*facts, *(lead(edit.case_id, 1.0) for edit in MINI))
    parts = {f"exact: {part}": rows for part in ("none, before", "rome, sequential")}
    parts["exact: rome, independent"] = rows
    assert [*published_figures(tmp_path, chapter="06")] == ["06_deduced", "06_recalled_links"]
    run = run_of(parts)
    into = Archive(tmp_path / "thinkedit")
    into.put("m", run.tables, run.about)
    drawn = {
        name: entry.draw() for name, entry in published_figures(tmp_path, chapter="06").items()
    }
    plt.close("all")
    assert set(drawn) == {"06_deduced", "06_recalled_links", "06_direct_against_chains"}
    caption = caption_of_runs([into.get("m")], "x")
    assert caption == "ours: m, 3 edits, edits of mini, preset tuned, float32 on cpu, x"
