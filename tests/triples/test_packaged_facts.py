"""The packaged facts are many, typed, labelled and dated where it matters."""

from collections import Counter

import pytest

from helpers.triples.packaged_facts import (
    COLUMNS,
    Fact,
    FactError,
    packaged_relations,
    packaged_triples,
    read_facts,
    write_facts,
)


@pytest.fixture(scope="module")
def facts():
    return packaged_triples()


def test_enough_facts_and_multi_answer_relations(facts):
    answers = Counter((fact.subject, fact.relation) for fact in facts)
    groups = Counter(relation for (_, relation), count in answers.items() if count >= 5)
    assert len(facts) >= 3000
    assert sum(count >= 20 for count in groups.values()) >= 12


def test_relations_are_described_and_objects_have_the_described_type(facts):
    relations = packaged_relations()
    assert {fact.relation for fact in facts} <= set(relations)
    for relation in relations:
        types = {fact.subject_types[0] for fact in facts if fact.relation == relation}
        assert relations[relation].subject_type in types


def test_no_markup_or_leftovers_in_labels(facts):
    labels = {label for fact in facts for label in (fact.subject, fact.object)}
    assert not [label for label in labels if any(mark in label for mark in "<>;[]{}%")]
    assert not [label for label in labels if label != label.strip() or len(label) > 60]


def test_recent_facts_have_older_answers(facts):
    recent = {(f.subject, f.relation) for f in facts if f.start and f.start >= "2022"}
    older = Counter((f.subject, f.relation) for f in facts if not f.start or f.start < "2022")
    assert sum(older[key] >= 4 for key in recent) >= 100


def test_membership_known_with_and_without_date_is_one_fact(facts):
    finland = [f for f in facts if (f.subject, f.object) == ("Finland", "NATO")]
    assert [(f.relation, f.start) for f in finland] == [("P463", "2023")]


def test_written_facts_are_read_back(tmp_path):
    fact = Fact("Peru", ("country",), "P47", "Chile", ("country", "republic"), "1929", None, "test")
    write_facts([fact, fact], tmp_path / "facts.tsv")
    assert read_facts(tmp_path / "facts.tsv") == (fact,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\n", "columns"),
        ("\t".join(COLUMNS) + "\nPeru\tcountry\n", "line 2: 2 fields"),
        ("\t".join(COLUMNS) + "\nPeru\tcountry\tP47\t\tcountry\t\t\ttest\n", "line 2: labels"),
    ],
)
def test_malformed_files_are_refused_with_place(tmp_path, text, message):
    path = tmp_path / "facts.tsv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FactError, match=message):
        read_facts(path)
