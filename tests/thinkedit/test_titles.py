"""The findings over ThinkEdit's published figures, counted anew from the tables they are drawn from."""

from __future__ import annotations

import math
import re

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from helpers.paths import PACKAGED
from helpers.results.archive import ArchiveError, archive
from helpers.results.figure import published
from helpers.results.text import published_table
from helpers.thinkedit import stored_scores
from helpers.thinkedit.graph_drawings import stored_case
from helpers.thinkedit.knowgic import load_edits
from helpers.thinkedit.known import BY_RANK
from helpers.thinkedit.pooled import edit_sums, pooled

KNOWGIC = ("gemma3-270m", "smollm2-135m")


@pytest.fixture(scope="module")
def told():
    """The numbers in a published figure's title, in order."""
    entries = published(chapter="06")

    def numbers(name: str) -> list[int]:
        figure = entries[name].draw()
        plt.close(figure)
        return [int(number) for number in re.findall(r"\d+", figure.get_suptitle())]

    return numbers


def knows(facts: pd.DataFrame) -> pd.Series:
    """``BY_RANK`` in other words."""
    best = facts[["rival_sum", "other_sum"]].max(axis=1)
    return (facts["original_named"] >= math.log(0.05)) | (facts["original_sum"] > best)


def deducible(model: str) -> tuple[int, int, int]:
    """Chains all of whose facts the unedited model knows, those of three steps or more, and all."""
    tables = archive("thinkedit").get(model).tables
    scores = tables["exact"]
    facts = scores[(scores["mode"] == "before") & (scores["form"] == "fact")]
    steps = tables["chains"].merge(
        facts.assign(known=knows(facts))[["case_id", "item", "known"]], on=["case_id", "item"]
    )
    chains = steps.groupby(["case_id", "chain"])["known"].agg(["all", "size"])
    long = chains["all"] & (chains["size"] >= 3)
    return int(chains["all"].sum()), int(long.sum()), len(chains)


def test_deducible_chains(told):
    counts = [deducible(model) for model in KNOWGIC]
    assert told("06_active_chains") == [*(count[0] for count in counts), counts[0][2]]
    assert told("06_ifr_by_length")[:2] == [sum(c[1] for c in counts), sum(c[0] for c in counts)]


def test_the_papers_lengths(told):
    table = published_table("thinkedit_table_10")
    table = table[table["metric"] == "ifr"].set_index(["model", "method", "steps"])["value"]
    pairs = [(table[(*key, "1")], table[(*key, "3")]) for key in {k[:2] for k in table.index}]
    told_of = told("06_paper_ifr_by_length")
    assert told_of == [sum(three > one for one, three in pairs), len(pairs)]


def test_what_is_recalled(told):
    links, chains = [], []
    for model in ("smollm2-135m", "gemma3-270m"):
        table = pd.read_csv(PACKAGED / "thinkedit" / f"recalled-{model}-links.csv")
        total = table.set_index("relation").loc["all"]
        links += [total["on a kept chain"], total["proposed"]]
        counted = pd.read_csv(PACKAGED / "thinkedit" / f"recalled-{model}-chains.csv")
        chains.append(counted["kept"].sum())
    assert told("06_recalled") == [*links, *chains]


def test_what_a_sequence_costs(told):
    """Methods whose pooled CKP is lower in the sequence than alone, on the same edits."""
    run = archive("thinkedit").get("smollm2-135m_recalled-smollm2-135m")
    found = stored_scores.evaluation((run,))
    alone, together = (edit_sums(found, mode=m) for m in ("independent", "sequential"))
    lower, every = 0, 0
    for method in set(alone["method"]) & set(together["method"]) - {"prune"}:  # equals MEMIT
        own = [t[(t["method"] == method) & (t["measure"] == "CKP")] for t in (alone, together)]
        common = set(own[0]["edit"]) & set(own[1]["edit"])
        before, after = (pooled(t[t["edit"].isin(common)]).mean for t in own)
        lower, every = lower + (after < before), every + 1
    assert told("06_recalled_methods") == [lower, every]


def test_a_stored_edit_is_drawn_with_what_is_known():
    run = archive("thinkedit").get("smollm2-135m_recalled-smollm2-135m")
    edit = max(load_edits("recalled-smollm2-135m"), key=lambda edit: len(edit.chains))
    facts = stored_scores.facts_of(run, "alphaedit", mode="independent")
    figure = stored_case(edit, facts, number=str(edit.case_id), caption="x")
    links = {(fact.subject.casefold(), fact.object.casefold()) for fact in edit.facts}
    own = facts[facts["case_id"] == edit.case_id]
    assert own["known_before"].all()  # the model recalls its own graph
    title = figure.get_suptitle()
    assert title.startswith(f"{len(links)} of {len(links)} links are known before the edit, ")
    assert int(title.split()[-4]) < len(links)
    with pytest.raises(ArchiveError, match="no exact scores of kn, independent"):
        stored_scores.facts_of(run, "kn", mode="independent")


def test_the_paper_s_graphs_are_drawn_from_stored_scores(data_folder):
    run = archive("thinkedit").get("smollm2-135m")
    facts = stored_scores.facts_of(run, "alphaedit", mode="sequential", rule=BY_RANK)
    edits = {edit.case_id: edit for edit in load_edits("2025-06")}
    for number in (15, 9, 5, 16, 6, 7):  # Figures 15 to 20
        figure = stored_case(edits[number], facts, number=str(number))
        plt.close(figure)
        told = tuple(map(int, re.findall(r"\d+", figure.get_suptitle())))
        own = facts[facts["case_id"] == number].set_index("item")
        links: dict[tuple[str, str], list[bool]] = {}
        for item, fact in enumerate(edits[number].facts):
            ends = links.setdefault((fact.subject.casefold(), fact.object.casefold()), [False] * 2)
            ends[0] |= own.loc[item, "known_before"]
            ends[1] |= own.loc[item, "known_after"]
        before = sum(once for once, _ in links.values())
        kept = sum(once and still for once, still in links.values())
        assert told == (before, len(links), kept)
        names = {text.get_text().replace("\n", " ") for text in figure.axes[0].texts}
        assert edits[number].subject in names
