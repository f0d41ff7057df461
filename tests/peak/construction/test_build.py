"""PEAK construction: hand-checked records, determinism, and no contradictions whatever the graph."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import UserError
from helpers.peak.construction.build import (
    Linked,
    PeakSettings,
    build_counterfactual,
    build_temporal,
)
from helpers.peak.records import PeakRecord, contradictions, load_peak
from helpers.triples.graph import Edge, Entity, Graph
from helpers.triples.templates import PromptTemplates

CLOZES = ("The country of {} shares a border with", "One of the neighbours of {} is")
QUESTIONS = ("Which countries border {}?", "What lies next to {}?")
TEMPLATES = {name: PromptTemplates(CLOZES, QUESTIONS) for name in ("P47", "P17", "re_P17", "P190")}
SMALL = PeakSettings(
    correct=(2, 3), hard=(1, 3), random_false=2, locality=(1, 2), link_steps=1, seed=3
)


def graph_of(triples, types=None, labels=None) -> Graph:
    """A graph from (subject, relation, object[, start]); names are labels unless said otherwise."""
    edges = tuple(Edge(*triple) for triple in triples)
    names = sorted({name for edge in edges for name in (edge.subject, edge.object)})
    return Graph(
        {
            name: Entity(
                name,
                (labels or {}).get(name, name),
                frozenset((types or {}).get(name, ["country"])),
            )
            for name in names
        },
        edges,
    )


BORDERS = [("A", "P47", x) for x in "BCD"] + [
    ("B", "P47", "A"), ("B", "P47", "C"), ("E", "P47", "F"), ("F", "P47", "E"), ("F", "P47", "G"),
    ("H", "P47", "I"), ("I", "P47", "H"), ("J", "P47", "K"),
]  # fmt: skip


def test_a_record_is_what_the_definitions_say():
    graph = graph_of(BORDERS)
    built = build_counterfactual(graph, TEMPLATES, settings=SMALL, relations=["P47"])
    record = next(record for record in built.records if record.subject == "A")
    linked = {"E": "FG", "F": "EG", "G": "F", "H": "I", "I": "H", "K": "J", "J": "K"}
    assert set(record.correct) == set("BCD")
    assert record.target_true == record.correct[0]
    assert record.target_new in "EFGHIK"  # borders something, but not A
    assert set(record.hard_false) <= set(linked[record.target_new])
    assert not set(record.random_false) & {*linked[record.target_new], *"ABCD", record.target_new}
    assert len(record.random_false) == 2
    assert record.prompt in CLOZES
    assert len(set(record.paraphrases)) == 2
    assert record.prompt.replace("{}", "A") not in record.paraphrases
    for prompt, answer in record.locality:
        subject = next(name for name in "BCDEFGHIJK" if f" {name}" in prompt)
        assert answer in graph.answers[subject, "P47"]
        assert record.target_new not in graph.answers[subject, "P47"]


def test_every_fact_is_a_record_or_lost_at_a_step():
    graph = graph_of(BORDERS)
    built = build_counterfactual(graph, TEMPLATES, settings=SMALL)
    assert built.funnel()[0] == ("facts (subject, relation)", len(graph.answers))
    assert built.funnel()[-1][1] == len(built.records)
    assert built.lost["relation has templates"] == sum("re_" in key[1] for key in graph.answers)


@pytest.mark.parametrize("seed", range(3))
def test_the_cut_off_itself_is_new_and_the_end_itself_is_ignored(seed):
    """Without a day a date is its year; all three neighbours could be asked for."""
    dated = [("A", "P47", "B", "1990"), ("A", "P47", "C"), ("A", "P47", "D", "2022"),
             ("A", "P47", "E", "2026"), ("D", "P47", "F"), ("D", "P47", "G"), ("E", "P47", "F"),
             ("E", "P47", "G"), ("H", "P47", "B"), ("I", "P47", "C"), ("J", "P47", "K")]  # fmt: skip
    span = {"cutoff": "2022", "until": "2026"}
    how = replace(SMALL, seed=seed)
    built = build_temporal(graph_of(dated), TEMPLATES, **span, settings=how)
    (record,) = built.records
    assert (record.subject, record.target_new) == ("A", "D")
    assert set(record.correct) == set("BC")


def test_shared_neighbours_count_only_with_two_steps():
    films = [(f"film {i}", "P57", f"person {i // 4}") for i in range(12)]
    types = {name: [name.split()[0]] for triple in films for name in (triple[0], triple[2])}
    linked = Linked(graph_of(films, types))
    assert linked.near("film 0") == {"person 0"}
    assert linked.near("film 0", 2) == {"person 0", "film 1", "film 2", "film 3"}
    made = PeakSettings(hard=(1, 9), random_false=3, link_steps=1)
    rng = random.Random(0)

    def drawn(**changes):
        how = replace(made, **changes)
        return linked.false_answers("film 0", excluded=["film 1"], settings=how, rng=rng)

    assert drawn() is None
    hard, far = drawn(link_steps=2)
    assert set(hard) == {"film 2", "film 3"}
    assert set(far) <= {f"film {i}" for i in range(4, 12)}
    with pytest.raises(UserError, match="link_steps"):
        drawn(link_steps=3)


LABELS = [
    f"{a}{b}" for a in ("Ada", "ADA", "Bo", "bo", "Cy", "Cy", "Ed", "Flo") for b in "stuvwxyz"
]


def answers_of(graph: Graph, record: PeakRecord) -> list[set[str]]:
    """All known answers in lower case; one set for each subject of this name that has the correct."""
    facts = [
        {graph.label(o).casefold() for o in answers}
        for (subject, relation), answers in graph.answers.items()
        if relation == record.relation and graph.label(subject) == record.subject
    ]
    return [known for known in facts if {o.casefold() for o in record.correct} <= known]


def kinds_of(graph: Graph, labels) -> set[str]:
    """Types of all entities that bear one of the labels."""
    return {kind for e in graph.entities.values() if e.label in labels for kind in e.types}


@settings(max_examples=60)
@given(
    triples=st.lists(
        st.tuples(
            st.sampled_from(range(64)), st.sampled_from(["P47", "P17", "P99"]),
            st.sampled_from(range(64)), st.sampled_from([None, "1990", "2022-05", "2024"]),
        ),
        min_size=60, max_size=260,
    ),
    seed=st.integers(0, 5),
)  # fmt: skip
def test_no_graph_leads_to_contradictions(triples, seed):
    """The anomalies of the official files: overlaps, o* in O, case twins, wrong numbers, …"""
    named = [(f"e{s}", r, f"e{o}", d) for s, r, o, d in triples if s != o]
    labels = {f"e{i}": label.strip() for i, label in enumerate(LABELS)}
    types = {f"e{i}": ["odd" if i % 2 else "even", "thing"][: 1 + (i % 3 > 0)] for i in range(64)}
    graph = graph_of(named, types, labels)
    made = PeakSettings(correct=(2, 6), hard=(1, 5), random_false=10, seed=seed)
    counterfactual = build_counterfactual(graph, TEMPLATES, settings=made).records
    temporal = build_temporal(graph, TEMPLATES, cutoff="2022", until="2030", settings=made).records
    for records in (counterfactual, temporal):
        assert not any(map(contradictions, records))
    # Against the graph itself: what a list does not show is known all the same.
    for record in counterfactual:
        new = record.target_new.casefold()
        assert any(new not in answers for answers in answers_of(graph, record))
        assert kinds_of(graph, record.correct) & kinds_of(graph, [record.target_new])
    for record in (*counterfactual, *temporal):
        false = {o.casefold() for o in (*record.hard_false, *record.random_false)}
        assert any(not false & answers for answers in answers_of(graph, record))


@pytest.mark.parametrize(("name", "least"), [("peak-mini-cf", 150), ("peak-mini-t", 50)])
def test_the_packaged_sets_are_large_and_sound(name, least):
    records = load_peak(name).records
    assert len(records) >= least
    assert not any(map(contradictions, records))
    assert len({record.relation for record in records[:6]}) >= 4  # a few records already mix
