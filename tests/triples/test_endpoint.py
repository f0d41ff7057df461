"""A remote endpoint, played by an HTTP server on loopback that answers from an embedded store."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs

import pytest

from helpers.triples.endpoint import Endpoint, EndpointError, select_pages, user_agent
from helpers.triples.labelled_graph import read_graph
from helpers.triples.packaged_facts import Fact
from helpers.triples.triple_store import TripleStore


class _Server(HTTPServer):
    """Counts requests and fails as often as it is told."""

    def __init__(self, store: TripleStore) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.store, self.agents, self.failures, self.broken = store, [], [], False


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        self.server.agents.append(self.headers["User-Agent"])
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if self.server.failures:
            self.send_response(self.server.failures.pop(0))
            self.send_header("Retry-After", "7")
            self.end_headers()
            return
        rows = self.server.store.select(parse_qs(body)["query"][0])
        bindings = [{k: {"type": "literal", "value": v} for k, v in row.items()} for row in rows]
        content = json.dumps({"results": {"bindings": bindings}}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if self.server.broken else content)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server():
    store = TripleStore()
    names = ["Peru", "Chile", "Bolivia", "Brazil", "Ecuador"]
    store.add_facts(
        Fact(a, ("country",), "P47", b, ("country",)) for a in names for b in names if a != b
    )
    played = _Server(store)
    thread = threading.Thread(target=played.serve_forever, daemon=True)
    thread.start()
    yield played
    played.shutdown()
    played.server_close()
    thread.join()


@pytest.fixture
def endpoint(server, tmp_path):
    waits: list[float] = []
    made = Endpoint(f"http://127.0.0.1:{server.server_port}", folder=tmp_path, sleep=waits.append)
    made.waits = waits
    return made


def test_the_same_query_gives_the_same_graph_remotely_in_pages(server, endpoint):
    local, remote = read_graph(server.store, ["P47"]), read_graph(endpoint, ["P47"], page=7)
    assert remote.edges == local.edges
    assert remote.entities == local.entities
    assert len(server.agents) == 4  # 20 rows in pages of 7, and the types
    assert set(server.agents) == {user_agent()}


def test_answers_are_cached_on_disk(server, endpoint):
    first = read_graph(endpoint, ["P47"])
    asked = len(server.agents)
    assert read_graph(endpoint, ["P47"]).edges == first.edges
    assert len(server.agents) == asked


def test_failures_are_retried_with_growing_pauses(server, endpoint):
    server.failures = [503, 429]
    assert len(endpoint.select("SELECT ?s WHERE { ?s ?p ?o } ORDER BY ?s")) > 0
    assert endpoint.waits == [7, 7]  # the server asked for 7 s, more than the back-off of 2 and 4
    server.failures = [500] * 9
    with pytest.raises(EndpointError, match=r"does not answer .HTTP 500"):
        endpoint.select("SELECT ?o WHERE { ?s ?p ?o } ORDER BY ?o")
    assert len(server.failures) == 5


def test_a_refused_query_is_not_sent_again(server, endpoint):
    server.failures = [400] * 3
    with pytest.raises(EndpointError, match="HTTP 400"):
        endpoint.select("SELECT ?s WHERE { ?s ?p ?o }")
    assert len(server.failures) == 2


def test_a_cut_off_answer_is_no_answer(server, endpoint, tmp_path):
    server.broken = True
    with pytest.raises(EndpointError):
        endpoint.select("SELECT ?s WHERE { ?s ?p ?o }")
    assert list(tmp_path.iterdir()) == []


def test_the_cache_answers_when_the_endpoint_does_not(server, endpoint):
    query = "SELECT ?s WHERE { ?s ?p ?o } ORDER BY ?s"
    rows = endpoint.select(query)
    endpoint.refresh = True
    server.failures = [500] * 4
    with pytest.warns(UserWarning, match="using the cached answer"):
        assert endpoint.select(query) == rows


def test_a_damaged_cache_is_asked_for_again(server, endpoint, tmp_path):
    query = "SELECT ?s WHERE { ?s ?p ?o } ORDER BY ?s"
    rows = endpoint.select(query)
    (path,) = tmp_path.glob("*.json")
    path.write_text(path.read_text()[:40])
    with pytest.warns(UserWarning, match=f"{path.name} is damaged"):
        assert endpoint.select(query) == rows
    assert endpoint.select(query) == rows  # whole again, no warning
    assert len(server.agents) == 2


def test_endpoints_are_told_whom_to_write_to(monkeypatch):
    monkeypatch.setenv("HELPERS_CONTACT", "ada@example.org")
    assert "(ada@example.org)" in Endpoint().user_agent
    monkeypatch.delenv("HELPERS_CONTACT")
    assert "no contact given" in Endpoint().user_agent


def test_an_unreachable_endpoint_is_a_clear_error(tmp_path):
    gone = Endpoint("http://127.0.0.1:9", folder=tmp_path, attempts=1)
    with pytest.raises(EndpointError, match=r"does not answer .*packaged facts"):
        gone.select("SELECT ?s WHERE { ?s ?p ?o }")


def test_paging_needs_an_order(server):
    with pytest.raises(ValueError, match="ORDER BY"):
        list(select_pages(server.store, "SELECT ?s WHERE { ?s ?p ?o }"))
