"""Methods side by side: pooled over all chains, per edit, and their differences."""

import numpy as np
import pandas as pd
import pytest

from helpers.results.archive import archive
from helpers.results.statistics import holm
from helpers.thinkedit import knowgic, pooled, stored_scores, tables
from helpers.thinkedit import technique_tables as techniques
from helpers.thinkedit.known import Known
from helpers.thinkedit.report_tables import Evaluation, evaluate_scores, split_app

MINI = knowgic.load_edits("mini")
CHAINS = tables.chain_index(MINI)


@pytest.fixture
def scores() -> pd.DataFrame:
    """Sampled counts of two methods on the packaged edits: one forgets nothing, one every object."""
    rows = [(edit.case_id, item, 4, 0, 5) for edit in MINI for item, _ in enumerate(edit.facts)]
    before = pd.DataFrame(rows, columns=["case_id", "item", "hits", "new_hits", "n"])
    own = CHAINS.query("own")[["case_id", "item"]].drop_duplicates()
    lost = before.merge(own, how="left", indicator=True)["_merge"] == "both"
    parts = [
        before.assign(method="none", mode="before"),
        before.assign(method="memit", mode="independent"),
        before.assign(hits=np.where(lost, 0, 4), method="rome", mode="independent"),
    ]
    return pd.concat(parts, ignore_index=True).assign(model="m")


def evaluated(scores: pd.DataFrame) -> Evaluation:
    return evaluate_scores(scores, CHAINS, estimator="sampled")


def row(table: pd.DataFrame, method: str) -> pd.Series:
    return table.set_index("method").loc[method]


def test_an_edit_that_forgets_the_subjects_facts_is_deep_and_keeps_the_context(scores):
    table = techniques.technique_table(evaluated(scores), mode="independent")
    assert table["method"].tolist() == ["memit", "rome"]
    assert table["IFR"].tolist() == pytest.approx([1.0, 0.0])
    assert table["CKP"].tolist() == pytest.approx([1.0, 1.0])
    assert table["chains"].tolist() == [29, 29]
    assert table["edits"].tolist() == [3, 3]
    lengths = row(techniques.length_table(evaluated(scores), mode="independent"), "memit")
    assert lengths[["overall", "1", "2", "3", "4", "5"]].tolist() == pytest.approx([1.0] * 6)
    assert lengths["chains"].startswith("29/")


def test_a_deep_edit_leaves_no_longer_chain(scores):
    """Definition 2 by hand: MEMIT changes nothing here, ROME erases every fact about the subject."""
    table = techniques.deep_table(evaluated(scores), mode="independent").set_index("method")
    assert table["Deep-edited"].to_dict() == {"memit": 0.0, "rome": 1.0}
    direct = CHAINS.query("case_id == 1 and chain == 0")["item"].item()
    only = scores["case_id"].eq(1) & scores["item"].ne(
        direct
    )  # one edit had no longer chain before
    fewer = techniques.deep_table(
        evaluated(scores.assign(hits=scores["hits"].where(~only, 0))), mode="independent"
    )
    assert fewer["edits"].tolist() == [2, 2]


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
    scores = run.tables["exact"]
    own = scores[(scores["mode"] == "independent") & (scores["method"] == method)]
    facts = own[own["form"] == "fact"].set_index(["case_id", "item"])["original_named"]
    known = set(facts.index[np.exp(facts) >= 0.05])
    chains = run.tables["chains"].groupby(["case_id", "chain"])["item"].agg(list)
    longer = chains[
        (chains.map(len) > 1) & chains.index.isin(facts.index.unique("case_id"), level=0)
    ]
    whole = {case for (case, _), items in longer.items() if {(case, i) for i in items} <= known}
    assert (len(whole), longer.index.unique("case_id").size) == (left, edits)
    found = techniques.deep_table(stored_scores.evaluation((run,)), mode="independent")
    share = row(found, method)
    assert share["Deep-edited"] == pytest.approx(1 - left / edits)
    assert share["Deep-edited low"] < 1 - left / edits < share["Deep-edited high"]


def test_pooling_weighs_chains_and_the_mean_weighs_edits(scores):
    """One edit's facts halve: pooled, its share of the chains counts, per edit a third."""
    first = MINI[0].case_id
    halved = scores["case_id"].eq(first) & scores["method"].eq("memit")
    found = evaluated(scores.assign(hits=scores["hits"].where(~halved, scores["hits"] // 2)))
    kept = found.chains.query("method == 'memit'")
    weights = kept["length"] ** -0.5
    all_chains = row(techniques.technique_table(found, mode="independent"), "memit")
    assert all_chains["IFR"] == pytest.approx(np.average(kept["ratio"], weights=weights))
    edits = row(techniques.per_edit_table(found, mode="independent"), "memit")
    own = found.recovery.query("method == 'memit' and steps == 'overall'")["value"]
    assert edits["IFR"] == pytest.approx(own.mean())
    assert edits["IFR"] != pytest.approx(all_chains["IFR"], abs=0.05)
    for table in (all_chains, edits):
        assert 0 <= table["IFR low"] <= table["IFR"] <= table["IFR high"] <= 1 + 1e-9
    context = found.context.query("method == 'memit'")
    assert all_chains["CKP"] == pytest.approx((context["after"] / context["before"]).mean())
    assert all_chains["facts"] == len(context)


def test_context_that_was_never_known_is_left_out(scores):
    first = scores["case_id"] == MINI[0].case_id
    found = evaluated(scores.assign(hits=scores["hits"].where(~first, 0)))
    table = row(techniques.technique_table(found, mode="independent"), "memit")
    assert table["edits"] == 2
    assert (
        table["facts"]
        == (found.context.query("method == 'memit'")["edit"] != MINI[0].case_id).sum()
    )


def test_capped_ratios_stay_below_one(scores):
    more = scores["method"].eq("memit")
    found = evaluated(scores.assign(hits=scores["hits"].where(~more, 5)))
    table = row(techniques.technique_table(found, mode="independent"), "memit")
    assert table["IFR"] > 1.2
    assert table[["IFR capped", "IFR capped low", "IFR capped high"]].tolist() == pytest.approx(
        [1] * 3
    )


def sums(*values: float) -> pd.DataFrame:
    return pd.DataFrame({"edit": range(len(values)), "top": values, "bottom": 1.0})


def test_a_difference_is_judged_by_flipping_signs():
    ones = sums(*[1.0] * 6)
    six, five = (
        pooled.difference(part, part.assign(top=part["top"] + 0.5)) for part in (ones, ones[:5])
    )
    assert (six.estimate.mean, six.estimate.n) == (0.5, 6)
    assert six.p_value == pytest.approx(2 / 2**6)
    assert five.p_value == pytest.approx(2 / 2**5)
    assert (six.verdict, five.verdict) == ("more", "inconclusive")
    mixed = pooled.difference(ones, sums(1.5, 0.5, 1.5, 0.5, 1.5, 0.5))
    assert (mixed.p_value, mixed.verdict) == (1.0, "inconclusive")
    assert mixed.estimate.low < 0 < mixed.estimate.high
    assert mixed.could_show > 0.3
    assert np.isnan(pooled.difference(ones[:1], ones[:1]).p_value)


def test_differences_are_of_the_same_edits_and_corrected(scores):
    found = evaluated(scores)
    pairs = techniques.against_method(found, "memit", mode="independent")
    assert list(pairs) == [("m", "rome")]
    table = techniques.difference_table(pairs).set_index("measure")
    assert table.loc["IFR", "difference"].startswith("-1.00 [-1.00, -1.00]")
    assert table.loc["IFR", "edits"] == 3
    assert table.loc["IFR", "verdict"] == "inconclusive"  # three edits can show nothing
    assert techniques.against_method(found, "prune", mode="independent") == {}
    assert holm([0.01, 0.04, 0.03]).tolist() == pytest.approx([0.03, 0.06, 0.06])


def test_methods_with_app_are_compared_with_those_without(scores):
    after = scores[scores["mode"] != "before"]
    with_app = after[after["method"] == "rome"].assign(method="memit+app")
    plain, app = split_app(evaluated(pd.concat([scores, with_app])))
    pairs = techniques.against_mode(app, plain, mode="independent", other_mode="independent")
    assert list(pairs) == [("m", "memit")]
    table = techniques.difference_table(pairs).set_index("measure")
    assert table.loc["IFR", "difference"].startswith("-1.00")


def test_rules_say_how_much_is_known_under_each(exact_table):
    edit = MINI[1]
    facts = [
        (edit.case_id, "fact", i, -1.0 - i, 4, np.nan, np.nan, 0.0) for i in range(len(edit.facts))
    ]
    before = exact_table(*facts).assign(model="m", method="none", mode="before")
    both = pd.concat([before, before.assign(method="rome", mode="sequential")], ignore_index=True)
    rules = [
        Known("named", 0.3, top=False),
        Known("named", 0.01, top=False),
        Known("mean", 0.3, top=False),
    ]
    table = techniques.rules_table(both, tables.chain_index([edit]), rules, mode="sequential")
    probabilities = np.exp([-1.0 - i for i in range(len(edit.facts))])
    means = probabilities ** (1 / 4)
    expected = [(probabilities >= 0.3).sum(), (probabilities >= 0.01).sum(), (means >= 0.3).sum()]
    assert table["facts"].tolist() == expected
    assert table["rule"].is_unique
    kept = table["IFR rome"].dropna()
    assert kept.tolist() == pytest.approx([1.0] * len(kept))


def test_intervals_stand_beside_their_values(scores):
    text = techniques.as_text(techniques.technique_table(evaluated(scores), mode="independent"))
    assert row(text, "memit")["IFR"] == "1.00 [1.00, 1.00]"
    assert not any(" low" in name or " high" in name for name in text)
