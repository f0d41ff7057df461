"""A remote endpoint, played by an HTTP server on loopback that answers from an embedded store."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs

import pytest

from helpers import UserError
from helpers.triples import endpoint as module
from helpers.triples.endpoint import Endpoint
from helpers.triples.graph import read_graph
from helpers.triples.store import TripleFact, TripleStore

QUERY = "SELECT ?s WHERE { ?s ?p ?o } ORDER BY ?s"


class _Handler(BaseHTTPRequestHandler):
    """Answers from the store, after the failures that the server is told to play."""

    def do_POST(self) -> None:
        played = self.server
        played.agents.append(self.headers["User-Agent"])
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if played.failures:
            self.send_response(played.failures.pop(0))
            self.send_header("Location", "http://other.example/")
            self.end_headers()
            return
        rows = played.store.select(parse_qs(body)["query"][0])
        bindings = [{k: {"type": "literal", "value": v} for k, v in row.items()} for row in rows]
        content = json.dumps({"results": {"bindings": bindings}}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if played.broken else content)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch):
    waits: list[float] = []
    monkeypatch.setattr("urllib3.util.retry.time.sleep", waits.append)
    names = ["Peru", "Chile", "Bolivia", "Brazil", "Ecuador"]
    borders = ((a, b) for a in names for b in names if a != b)
    played = HTTPServer(("127.0.0.1", 0), _Handler)
    played.store = TripleStore(
        TripleFact(a, ("country",), "P47", b, ("country",)) for a, b in borders
    )
    played.agents, played.failures, played.broken, played.waits = [], [], False, waits
    thread = threading.Thread(target=played.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield played
    played.shutdown()
    played.server_close()
    thread.join()


@pytest.fixture
def endpoint(server, tmp_path):
    return Endpoint(f"http://127.0.0.1:{server.server_port}", folder=tmp_path)


def test_the_same_query_gives_the_same_graph_remotely_in_pages_and_is_cached(
    server, endpoint, monkeypatch
):
    monkeypatch.setattr(module, "PAGE", 7)
    monkeypatch.setenv("HELPERS_CONTACT", "ada@example.org")
    local, remote = read_graph(server.store, ["P47"]), read_graph(endpoint, ["P47"])
    assert remote.edges == local.edges
    assert remote.entities == local.entities
    assert len(server.agents) == 4  # 20 rows in pages of 7, and the types
    assert all("(ada@example.org)" in agent for agent in server.agents)
    assert read_graph(endpoint, ["P47"]).edges == local.edges
    assert len(server.agents) == 4


def test_failures_are_retried_with_growing_pauses(server, endpoint):
    server.failures = [503, 429]
    assert len(endpoint.select(QUERY)) > 0
    server.failures = [500] * 9
    with pytest.raises(UserError, match=r"does not answer .*HTTP 500.*packaged facts"):
        endpoint.select(QUERY.replace("?s", "?o"))
    assert server.waits == [4, 4, 8]
    assert len(server.failures) == 5


@pytest.mark.parametrize(("status", "message"), [(400, "HTTP 400"), (302, "HTTP 302 Found")])
def test_a_refused_query_is_not_sent_again(server, endpoint, status, message):
    server.failures = [status] * 3
    with pytest.raises(UserError, match=message):
        endpoint.select(QUERY)
    assert len(server.failures) == 2


def test_a_cut_off_answer_is_no_answer(server, endpoint, tmp_path):
    server.broken = True
    with pytest.raises(UserError, match="does not answer"):
        endpoint.select(QUERY)
    assert list(tmp_path.iterdir()) == []
