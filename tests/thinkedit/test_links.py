"""First and later links of chains: shares worked out by hand, and the published ones counted anew."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from helpers.results.archive import archive
from helpers.thinkedit import links
from helpers.thinkedit.links import DIRECT_QUESTION, FIRST, LATER

# Edit 1: asked directly (0); chains 1-2 and 1-3-4. Edit 2: chain 0-1 alone.
STEPS = pd.DataFrame(
    [
        (1, 0, 1, 0, True),
        (1, 1, 1, 1, True),
        (1, 1, 2, 2, False),
        (1, 2, 1, 1, True),
        (1, 2, 2, 3, False),
        (1, 2, 3, 4, False),
        (2, 0, 1, 0, True),
        (2, 0, 2, 1, False),
    ],
    columns=["case_id", "chain", "step", "item", "own"],
)


def facts(known_before: str, known_after: str) -> pd.DataFrame:
    """Of edit 1's five facts and edit 2's two, whether each is known: a letter k, or none."""
    places = [(1, item) for item in range(5)] + [(2, item) for item in range(2)]
    table = pd.DataFrame(places, columns=["case_id", "item"])
    return table.assign(
        known_before=[letter == "k" for letter in known_before],
        known_after=[letter == "k" for letter in known_after],
    )


def test_every_link_has_one_kind():
    found = links.links_of_chains(STEPS).set_index(["case_id", "item"])["kind"]
    kinds = [DIRECT_QUESTION, FIRST, LATER, LATER, LATER]
    assert found.loc[1].sort_index().tolist() == kinds
    assert found.loc[2].sort_index().tolist() == [FIRST, LATER]


def test_a_fact_that_is_asked_directly_is_no_first_link():
    through = pd.concat(
        [STEPS, pd.DataFrame([(1, 3, 1, 0, True), (1, 3, 2, 4, False)], columns=STEPS.columns)]
    )
    found = links.links_of_chains(through).set_index(["case_id", "item"])["kind"]
    assert found.loc[(1, 0)] == DIRECT_QUESTION


def test_shares_are_of_the_links_known_before():
    shares = links.shares_known(facts("kkkk.kk", ".kk.k.k"), links.links_of_chains(STEPS))
    assert shares.loc[1, [DIRECT_QUESTION, FIRST, LATER]].tolist() == [0, 1, 1 / 2]
    assert shares.loc[1, f"{LATER} n"] == 2  # item 4 was not known before
    assert np.isnan(shares.loc[2, DIRECT_QUESTION])
    assert shares.loc[2, [FIRST, LATER]].tolist() == [0, 1]


def table_of(mode: str, method: str, first: list[float], later: list[float]) -> pd.DataFrame:
    n = len(first)
    counts = {f"{kind} n": 1 for kind in (DIRECT_QUESTION, FIRST, LATER)}
    shares = {DIRECT_QUESTION: np.zeros(n), FIRST: first, LATER: later}
    return pd.DataFrame(
        {"edit": range(n), **shares, **counts, "model": "m", "method": method, "mode": mode}
    )


def test_where_a_graph_breaks_is_tested_on_the_same_edits():
    ten = [0.0] * 10
    shares = pd.concat(
        [
            table_of("independent", "memit", ten, [1.0] * 10),
            table_of("independent", "prune", ten, [1.0] * 10),
            table_of("independent", "ft-m", [1.0] * 9 + [np.nan], [0.0] * 10),
            table_of("independent", "rome", ten, [*ten[:5], 1.0, *ten[:3], np.nan]),
        ]
    )
    table = links.two_ways_table(shares).table.set_index("method")
    assert table["breaks at"].to_dict() == {
        "memit": "the subject",
        "prune": "not tested again",  # MEMIT, where each edit is made alone
        "rome": "inconclusive",
        "ft-m": "elsewhere",
    }
    assert table.loc["ft-m", "n edits"] == 9
    assert table.loc["memit", "later - first"].startswith("+1.00")


def test_what_comes_back_is_compared_with_the_whole_edit():
    ten = [0.0] * 10
    shares = pd.concat(
        [
            table_of("independent", "memit", ten, [1.0] * 10),
            table_of("without key", "memit", [1.0] * 10, [1.0] * 10),
            table_of("without other key", "memit", ten[:8], [1.0] * 8),
        ]
    )
    found = links.changes_of_modes(shares, ("without key", "without other key")).table
    of_first = found[found["links"] == FIRST].set_index("mode")
    assert of_first["Holm"].tolist() == ["more known", "inconclusive"]
    assert of_first["n edits"].tolist() == [10, 8]
    assert set(found.loc[found["links"] == LATER, "Holm"]) == {"inconclusive"}
    assert links.changes_of_modes(shares, ("without key whitened",)).table.empty


@pytest.mark.parametrize("method", ["memit", "ft-m"])
def test_published_shares_are_counted_from_the_stored_scores(method):
    """Chain by chain, from the log-probabilities."""
    run = archive("thinkedit").get("smollm2-135m_recalled-smollm2-135m")
    scores = run.tables[f"exact: {method}, independent"].query("form == 'fact'")
    known = scores.set_index(["case_id", "item"])["original_named"] >= np.log(0.05)
    first: dict[int, dict[int, bool]] = {}
    later: dict[int, dict[int, bool]] = {}
    for (case, _), chain in run.tables["chains"].groupby(["case_id", "chain"]):
        if len(chain) > 1:
            for step, item in zip(chain["step"], chain["item"], strict=True):
                kind = first if step == 1 else later
                kind.setdefault(case, {})[item] = bool(known[case, item])
    means = [np.mean([np.mean([*of.values()]) for of in kind.values()]) for kind in (first, later)]
    edits = links.in_mode(links.links_table([run]), "independent")["smollm2-135m", method]
    found = links.link_estimates(edits)
    assert [found[FIRST].mean, found[LATER].mean] == pytest.approx(means)
