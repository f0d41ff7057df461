"""The embedded store and what fills it: facts, dates, labels, sources, and clear errors."""

from collections import Counter

import pyoxigraph as ox
import pytest

from helpers import UserError
from helpers.triples import sources
from helpers.triples.graph import read_graph
from helpers.triples.sources import (
    codex_store,
    open_source,
    packaged_relations,
    packaged_triples,
    read_facts,
)
from helpers.triples.store import (
    Edge,
    TripleFact,
    TripleStore,
    entity_id,
    entity_iri,
    relation_iris,
)
from tools.collect.__main__ import write_facts

COUNTRY = ("country",)


def test_facts_come_back_with_labels_types_and_dates():
    member = TripleFact("NATO", ("organization",), "<member>", "Peru", COUNTRY, "2023-04", "2024")
    store = TripleStore([TripleFact("Peru", COUNTRY, "P47", "Chile", COUNTRY), member])
    graph = read_graph(store, ["P47", "<member>"])
    assert set(graph.edges) == {
        Edge("country/Peru", "P47", "country/Chile"),
        Edge("organization/NATO", "<member>", "country/Peru", "2023-04", "2024"),
    }
    assert graph.entities["country/Peru"].types == {"country"}
    assert set(graph.answers["country/Peru", "re_<member>"]) == {"organization/NATO"}
    assert graph.neighbours["country/Peru"] == {"country/Chile", "organization/NATO"}


def test_the_first_of_several_periods_counts():
    periods = [
        TripleFact("Ronaldo", ("person",), "P54", "United", ("club",), y) for y in ("2021", "2003")
    ]
    assert [edge.start for edge in read_graph(TripleStore(periods), ["P54"]).edges] == ["2003"]


def test_iris_are_wikidatas_where_there_are_any():
    assert entity_iri("Q183") == "http://www.wikidata.org/entity/Q183"
    assert relation_iris("P47")[0] == "http://www.wikidata.org/prop/direct/P47"
    for identifier in ("Q183", "city/Nuku'alofa", "person/Ó, é"):
        assert entity_id(entity_iri(identifier)) == identifier


def test_entities_without_label_are_omitted_and_counted():
    store = TripleStore()
    for entity in (("Q1", "Mars  one", ["Q2"]), ("Q3", "Phobos", []), ("Q4", None, [])):
        store.add_entity(*entity)
    for moon in ("Q3", "Q4"):
        store.add_triple(Edge("Q1", "P398", moon), origin="moons")
    graph = read_graph(store, ["P398"])
    assert [edge.object for edge in graph.edges] == ["Q3"]
    assert graph.unlabelled == {"Q4"}
    assert graph.label("Q1") == "Mars one"
    with pytest.raises(UserError, match="no labelled triples of P999"):
        read_graph(store, ["P999"])


WIKIDATA_LIKE = """
@prefix wd: <http://www.wikidata.org/entity/> . @prefix p: <http://www.wikidata.org/prop/> .
@prefix wdt: <http://www.wikidata.org/prop/direct/> .
@prefix ps: <http://www.wikidata.org/prop/statement/> .
@prefix pq: <http://www.wikidata.org/prop/qualifier/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix wikibase: <http://wikiba.se/ontology#> .
wd:Q1 rdfs:label "Peru"@en, "Pérou"@fr . wd:Q2 rdfs:label "Ann"@mul . wd:Q3 rdfs:label "Bo"@en,
  "Bo!"@mul . wd:Q4 rdfs:label "Cy"@en .
wd:Q1 wdt:P35 wd:Q2 .
wd:Q1 p:P35 [ ps:P35 wd:Q2 ; wikibase:rank wikibase:PreferredRank ; pq:P580 "2021-07-28T00:00:00Z" ],
  [ ps:P35 wd:Q3 ; wikibase:rank wikibase:NormalRank ; pq:P580 "2016-07-28T00:00:00Z" ;
    pq:P582 "2018-03-23T00:00:00Z" ],
  [ ps:P35 wd:Q4 ; wikibase:rank wikibase:DeprecatedRank ] .
"""


def test_former_statements_count_and_deprecated_ones_do_not():
    """Wikidata: direct triples for the best rank alone, labels in English or for all languages."""
    store = TripleStore()
    store._store.load(WIKIDATA_LIKE.encode(), format=ox.RdfFormat.TURTLE)
    graph = read_graph(store, ["P35"])
    assert [(graph.label(e.object), e.start, e.end) for e in graph.edges] == [
        ("Ann", "2021-07-28", None),
        ("Bo", "2016-07-28", "2018-03-23"),
    ]


def test_a_table_of_your_own_is_read_and_written(tmp_path):
    path = tmp_path / "own.tsv"
    path.write_text("subject\trelation\tobject\tstart\nApple\tP176\tiPod\t2001\n", encoding="utf-8")
    graph = read_graph(open_source(str(path)), ["P176"])
    assert graph.edges == (Edge("thing/Apple", "P176", "thing/iPod", "2001"),)
    fact = TripleFact(
        "Peru", COUNTRY, "P47", "Chile", ("country", "republic"), "1929", None, "test"
    )
    write_facts([fact, fact], path)
    assert read_facts(path) == (fact,)


HEADER = "subject\trelation\tobject\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("subject\tobject\nA\tB\n", "the header must hold"),
        (f"{HEADER}Apple\tP176\n", "line 2: expected subject, relation, object"),
        (f"{HEADER}Apple\t\tiPod\n", "line 2: .* must not be empty"),
        (f"{HEADER}Apple\tP176\tiPod\tmore\n", "line 2: expected"),
        (f"{HEADER}A\tP1\tB\nApple\tmakes\tiPod\n", "line 3: .*write P47"),
        ("subject\trelation\tobject\tstart\nA\tP1\tB\tMay 2020\n", "line 2: date 'May 2020'"),
        (f"{HEADER}Café\tP1\tB\n", "line 2: byte 0xe9 is no UTF-8; save the file as UTF-8"),
    ],
)
def test_bad_tables_are_refused_with_place(tmp_path, text, message):
    path = tmp_path / "own.tsv"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(UserError, match=rf"own\.tsv.*{message}"):
        open_source(str(path))


def test_yago_files_give_dated_typed_facts(tmp_path):
    dates = ('"2022-##-##"', '"19##-##-##"', '"-0044-03-15"', '"1987-05-##"')
    lines = [f"<id{i}>\t<Ada_L.>\t<playsFor>\t<FC_{i}>\t0.5\n" for i in range(4)]
    lines += ["\t<FC_0>\trdf:type\t<wordnet_football_club_10>\n"]
    (tmp_path / "facts.tsv").write_text("".join(lines), encoding="utf-8")
    meta = [f"<m{i}>\t<id{i}>\t<occursSince>\t{d}^^xsd:date\n\n" for i, d in enumerate(dates)]
    (tmp_path / "meta.tsv").write_text("".join(meta), encoding="utf-8")
    graph = read_graph(open_source(str(tmp_path)), ["<playsFor>"])
    found = {graph.label(edge.object): edge.start for edge in graph.edges}
    assert found == {"FC 0": "2022", "FC 1": None, "FC 2": None, "FC 3": "1987-05"}
    assert {graph.label(edge.subject) for edge in graph.edges} == {"Ada L."}
    assert graph.entities["<FC_0>"].types == {"football club"}
    (tmp_path / "facts.tsv").write_text("<id1>\t<Ada>\n", encoding="utf-8")
    with pytest.raises(UserError, match="line 1: expected id, subject"):
        open_source(str(tmp_path))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"no YAGO files; put yagoFacts\.tsv"):
        open_source(str(tmp_path / "empty"))


def test_codex_gets_labels_from_wikidata_without_local_ones(tmp_path, monkeypatch):
    (tmp_path / "triples.txt").write_text("Q1\tP47\tQ2\n", encoding="utf-8")
    monkeypatch.setattr(sources, "locate", lambda resource: tmp_path / "triples.txt")
    monkeypatch.setattr(sources, "data_folder", lambda: None)
    names = TripleStore()
    for identifier, label in (("Q1", "Peru"), ("Q2", "Chile")):
        names.add_entity(identifier, label, ["Q6256"])
    monkeypatch.setattr(sources, "Endpoint", lambda: names)
    graph = read_graph(codex_store(), ["P47"])
    assert {(entity.label, *entity.types) for entity in graph.entities.values()} == {
        ("Peru", "Q6256"),
        ("Chile", "Q6256"),
    }


def test_the_packaged_facts_are_many_typed_labelled_and_dated():
    facts, relations = packaged_triples(), packaged_relations()
    answers = Counter((fact.subject, fact.relation) for fact in facts)
    groups = Counter(relation for (_, relation), count in answers.items() if count >= 5)
    assert len(facts) >= 3000
    assert sum(count >= 20 for count in groups.values()) >= 12
    types = {(fact.relation, fact.subject_types[0]) for fact in facts}
    assert {(relation, row["subject_type"]) for relation, row in relations.items()} <= types
    labels = {label for fact in facts for label in (fact.subject, fact.object)}
    assert not [label for label in labels if any(mark in label for mark in "<>;[]{}%")]
    assert not [label for label in labels if label != label.strip() or len(label) > 60]
    finland = [f for f in facts if (f.subject, f.object) == ("Finland", "NATO")]
    assert [(f.relation, f.start) for f in finland] == [("P463", "2023")]  # known also undated
