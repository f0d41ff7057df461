"""The embedded store: facts, dates, labels, sources, and clear errors."""

import json

import pyoxigraph as ox
import pytest

from helpers.triples import sources
from helpers.triples.labelled_graph import Edge, GraphError, read_graph
from helpers.triples.packaged_facts import Fact
from helpers.triples.sources import codex_store, table_store
from helpers.triples.triple_store import TripleError, TripleStore
from helpers.triples.vocabulary import entity_id, entity_iri, relation_iris
from helpers.triples.yago import yago_store

COUNTRY, CITY = ("country",), ("city",)


def test_facts_come_back_with_labels_types_and_dates():
    store = TripleStore()
    store.add_facts(
        [
            Fact("Peru", COUNTRY, "P47", "Chile", COUNTRY),
            Fact("NATO", ("organization",), "<member>", "Peru", COUNTRY, "2023-04", "2024"),
        ]
    )
    graph = read_graph(store, ["P47", "<member>"])
    assert set(graph.edges) == {
        Edge("country/Peru", "P47", "country/Chile"),
        Edge("organization/NATO", "<member>", "country/Peru", "2023-04", "2024"),
    }
    assert graph.entities["country/Peru"].types == {"country"}
    assert set(graph.answers["country/Peru", "re_<member>"]) == {"organization/NATO"}
    assert graph.neighbours["country/Peru"] == {"country/Chile", "organization/NATO"}


def test_the_first_of_several_periods_counts():
    store = TripleStore()
    store.add_facts(
        Fact("Ronaldo", ("person",), "P54", "United", ("club",), start)
        for start in ("2021", "2003")
    )
    assert [edge.start for edge in read_graph(store, ["P54"]).edges] == ["2003"]


def test_iris_are_wikidatas_where_there_are_any():
    assert entity_iri("Q183") == "http://www.wikidata.org/entity/Q183"
    assert relation_iris("P47")[0] == "http://www.wikidata.org/prop/direct/P47"
    for identifier in ("Q183", "city/Nuku'alofa", "person/Ó, é"):
        assert entity_id(entity_iri(identifier)) == identifier
    with pytest.raises(ValueError, match="write P47 or <name>"):
        relation_iris("shares border")


def test_entities_without_label_are_left_out_and_counted():
    store = TripleStore()
    store.add_entities([("Q1", "Mars", ["Q2"]), ("Q3", "Phobos", []), ("Q4", None, [])])
    store.add_triples([("Q1", "P398", "Q3", None, None), ("Q1", "P398", "Q4", None, None)])
    graph = read_graph(store, ["P398"])
    assert [edge.object for edge in graph.edges] == ["Q3"]
    assert graph.unlabelled == {"Q4"}
    with pytest.raises(GraphError, match="no labelled triples of P999"):
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


def test_literal_escapes_in_labels_are_resolved():
    store = TripleStore()
    store.add_entities(
        [("Q1", r"\u0022Heroes\u0022  album", ["Q5"]), ("Q2", "David Bowie", ["Q5"])]
    )
    store.add_triples([("Q2", "P800", "Q1", None, None)])
    assert read_graph(store, ["P800"]).label("Q1") == '"Heroes" album'


@pytest.mark.parametrize(
    ("triple", "message"),
    [
        (("Q1", "P47", "", None, None), "must not be empty"),
        (("Q1", "borders", "Q2", None, None), "triple 1 .*write P47"),
        (("Q1", "P47", "Q2", "May 2023", None), "date 'May 2023'"),
    ],
)
def test_malformed_triples_are_refused(triple, message):
    with pytest.raises(TripleError, match=message):
        TripleStore().add_triples([triple])


def test_bad_queries_are_refused():
    with pytest.raises(TripleError, match="not a valid SPARQL"):
        TripleStore().select("SELECT nothing")
    with pytest.raises(TripleError, match="only SELECT"):
        TripleStore().select("ASK { ?s ?p ?o }")


def test_a_table_of_the_users_is_read(tmp_path):
    path = tmp_path / "mine.tsv"
    path.write_text("subject\trelation\tobject\tstart\nApple\tP176\tiPod\t2001\n", encoding="utf-8")
    graph = read_graph(table_store(path), ["P176"])
    assert graph.edges == (Edge("thing/Apple", "P176", "thing/iPod", "2001"),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("subject\tobject\n", "the header must hold"),
        ("subject\trelation\tobject\nApple\tP176\n", "line 2"),
        ("subject\trelation\tobject\nApple\t\tiPod\n", "line 2"),
        ("subject\trelation\tobject\nApple\tP176\tiPod\tmore\n", "line 2"),
        ("subject\trelation\tobject\nA\tP1\tB\nApple\tmakes\tiPod\n", "line 3: .*write P47"),
        (
            "subject\trelation\tobject\tstart\nApple\tP176\tiPod\tMay 2020\n",
            "mine.tsv, line 2: date 'May 2020'",
        ),
    ],
)
def test_bad_tables_are_refused(tmp_path, text, message):
    path = tmp_path / "mine.tsv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TripleError, match=message):
        table_store(path)


def test_a_table_in_another_encoding_is_refused(tmp_path):
    path = tmp_path / "mine.tsv"
    path.write_bytes("subject\trelation\tobject\nCafé\tP176\tiPod\n".encode("latin-1"))
    with pytest.raises(TripleError, match=r"mine\.tsv is not written in UTF-8.*convert it"):
        sources.open_source(str(path))


def test_dates_of_yago_that_name_no_year_are_dropped(tmp_path):
    facts = tmp_path / "facts.tsv"
    dates = ('"19##-##-##"', '"198#-##-##"', '"-0044-03-15"', '"1987-05-##"')
    lines = [f"<id{i}>\t<A>\t<playsFor>\t<B{i}>\n" for i in range(4)]
    lines += [f"<m{i}>\t<id{i}>\t<occursSince>\t{d}^^xsd:date\n\n" for i, d in enumerate(dates)]
    facts.write_text("".join(lines), encoding="utf-8")
    graph = read_graph(sources.open_source(str(tmp_path)), ["<playsFor>"])
    assert {graph.label(e.object): e.start for e in graph.edges} == {
        "B0": None, "B1": None, "B2": None, "B3": "1987-05",
    }  # fmt: skip
    (tmp_path / "empty").mkdir()
    with pytest.raises(TripleError, match=r"no YAGO files: put yagoFacts\.tsv"):
        sources.open_source(str(tmp_path / "empty"))


def test_yago_files_give_dated_typed_facts(tmp_path):
    facts, meta = tmp_path / "facts.tsv", tmp_path / "meta.tsv"
    facts.write_text(
        "<id1>\t<Ada_L.>\t<playsFor>\t<FC_X>\n\t<FC_X>\trdf:type\t<wordnet_football_club_10>\n",
        encoding="utf-8",
    )
    meta.write_text('<m1>\t<id1>\t<occursSince>\t"2022-##-##"^^xsd:date\n', encoding="utf-8")
    graph = read_graph(yago_store(facts, meta), ["<playsFor>"])
    (edge,) = graph.edges
    assert (graph.label(edge.subject), graph.label(edge.object), edge.start) == (
        "Ada L.",
        "FC X",
        "2022",
    )
    assert graph.entities[edge.object].types == {"football club"}
    facts.write_text("<id1>\t<Ada>\n", encoding="utf-8")
    with pytest.raises(TripleError, match="line 1: expected id"):
        yago_store(facts)


def test_dyknow_answers_are_parsed(tmp_path, monkeypatch):
    content = {
        "countries": {
            "Italy": {
                "President of Italy": {
                    "answers": [
                        "A |S: +1999-05-18T00:00:00Z |E: +2006-00-00T00:00:00Z",
                        "B |S: |E: ",
                    ]
                },
                "images": {},
            }
        },
        "athletes": {},
        "organizations": {},
    }
    path = tmp_path / "dyknow.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    monkeypatch.setattr(sources, "locate", lambda resource: path)
    edges = read_graph(sources.dyknow_store(), ["P35"]).edges
    assert {(e.object, e.start, e.end) for e in edges} == {
        ("person/A", "1999-05-18", "2006"),
        ("person/B", None, None),
    }


def test_codex_gets_labels_elsewhere_without_local_ones(tmp_path, monkeypatch):
    (tmp_path / "triples.txt").write_text("Q1\tP47\tQ2\n", encoding="utf-8")
    monkeypatch.setattr(sources, "locate", lambda resource: tmp_path / "triples.txt")
    monkeypatch.setattr(sources, "data_folder", lambda: None)
    names = TripleStore()
    names.add_entities([("Q1", "Peru", ["Q6256"]), ("Q2", "Chile", ["Q6256"])])
    graph = read_graph(codex_store(names=names), ["P47"])
    assert {entity.label for entity in graph.entities.values()} == {"Peru", "Chile"}
    (tmp_path / "triples.txt").write_text("Q1 P47 Q2\n", encoding="utf-8")
    with pytest.raises(TripleError, match="line 1"):
        codex_store(names=names)
