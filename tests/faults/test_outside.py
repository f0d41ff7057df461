"""Endpoints, journals and files from outside that misbehave."""

from __future__ import annotations

import json
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress

import pytest
import yaml

from helpers.paths import PARAMS
from helpers.sweeps.command import run_file
from helpers.sweeps.matrix import SweepError
from helpers.thinkedit.grow.journal import Journal, JournalError
from helpers.triples import endpoint as module
from helpers.triples.endpoint import Endpoint, EndpointError, select_pages

ROWS = {"results": {"bindings": [{"s": {"type": "literal", "value": "Peru"}}]}}
GOOD = json.dumps(ROWS).encode()


def _answer(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


WHOLE = _answer(GOOD)
RETRIED = {
    "cut connection": _answer(GOOD)[:-10],
    "rows that are no objects": _answer(b'{"results": {"bindings": [1, "x", null]}}'),
    "half an answer": _answer(GOOD[:20]),
    "absurd Retry-After": _answer(b"", "503 Busy", "Retry-After: " + "9" * 400),
}
REFUSED = {
    "redirect to another host": _answer(b"", "302 Found", "Location: http://other.example/"),
    "a body without end": _answer(b" " * 5000),
    "not found": _answer(b"", "404 Not Found"),
}


@pytest.fixture
def played() -> Iterator[Callable[[list[bytes]], str]]:
    """A server that sends these bytes, one connection each, and closes; its address."""
    servers: list[socket.socket] = []

    def serve(answers: list[bytes]) -> str:
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)

        def run() -> None:
            for answer in answers:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with closing(connection):
                    connection.recv(65536)
                    connection.sendall(answer)

        threading.Thread(target=run, daemon=True).start()
        return f"http://127.0.0.1:{server.getsockname()[1]}/"

    yield serve
    for server in servers:
        server.close()


@pytest.mark.parametrize("fault", RETRIED)
def test_an_endpoint_that_misbehaves_is_asked_again(played, tmp_path, fault):
    waits: list[float] = []
    address = played([RETRIED[fault], WHOLE])
    asked = Endpoint(address, folder=tmp_path, sleep=waits.append, timeout=10)
    survived = asked.select("SELECT") == [{"s": "Peru"}] and 0 < max(waits) <= module.LONGEST_WAIT
    assert survived


@pytest.mark.parametrize("fault", REFUSED)
def test_an_endpoint_that_cannot_be_trusted_is_refused_with_the_reason(
    played, tmp_path, monkeypatch, fault
):
    monkeypatch.setattr(module, "LARGEST_ANSWER", 2000)
    address = played([REFUSED[fault], WHOLE])
    asked = Endpoint(address, folder=tmp_path, sleep=lambda _: None, timeout=10)
    with pytest.raises(EndpointError, match=r"larger than|HTTP 30\d .*give that address|HTTP 404"):
        asked.select("SELECT")
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.parametrize("drip", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\n", b" "])
def test_a_slow_drip_ends(monkeypatch, tmp_path, drip):
    """Whatever drips: provisional answers, headers, or what is no answer at all."""
    monkeypatch.setattr(module, "LONGEST_ANSWER", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.sendall(drip)
                while True:
                    connection.sendall(b"A: b\r\n" if b"200" in drip else drip)
                    time.sleep(0.05)

        threading.Thread(target=serve, daemon=True).start()
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        asked = Endpoint(address, folder=tmp_path, attempts=1, timeout=10)
        began = time.monotonic()
        with pytest.raises(EndpointError, match=r"not complete after|got more than 100 headers"):
            asked.select("SELECT")
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(("count", "ignored"), [(2, "OFFSET"), (3, "LIMIT")])
def test_pages_that_do_not_turn_end(count, ignored):
    class Stubborn:
        def select(self, query: str) -> list[dict[str, str]]:
            return [{"s": str(i)} for i in range(count)]

    with pytest.raises(EndpointError, match=f"ignores {ignored}"):
        list(select_pages(Stubborn(), "SELECT ?s ORDER BY ?s", page=2))


def test_a_journal_on_a_full_disk_keeps_whole_lines(tmp_path):
    """A file may grow to so many bytes: the write that goes beyond is cut there, as on a full disk."""

    path = tmp_path / "journal.jsonl"
    journal = Journal(path, model="m", settings={})
    whole = path.read_bytes()
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 20, old[1]))
        with pytest.raises(JournalError, match="free some space"):
            journal.record("responses", {"prompt": "x" * 100}, ["y"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == whole
    again = Journal(path, model="m", settings={})
    again.record("responses", {"prompt": "x"}, ["y"])
    assert len(path.read_text().splitlines()) == 2


def test_two_sessions_on_one_journal_do_not_fuse_lines(tmp_path):
    path = tmp_path / "journal.jsonl"
    first = Journal(path, model="m", settings={})
    second = Journal(path, model="m", settings={})
    first.record("responses", {"prompt": "a"}, ["1"])
    with pytest.raises(JournalError, match="another session writes to it"):
        second.record("responses", {"prompt": "b"}, ["2"])
    assert len(path.read_text().splitlines()) == 2


def test_shell_in_a_sweep_file_is_printed_and_refused(tmp_path):
    quick = yaml.safe_load((PARAMS / "sweeps" / "quick.yaml").read_text("utf-8"))
    for slurm in ({"slurm_setup": ["touch /tmp/x"]}, {"slurm_comment": "a\ntouch /tmp/x"}):
        path = tmp_path / "sweep.yaml"
        path.write_text(yaml.safe_dump({**quick, "slurm": slurm}), "utf-8")
        lines, _ = run_file(path, dry_run=True)
        assert any("shell: " in line and "touch /tmp/x" in line for line in lines)
        with pytest.raises(SweepError, match=r"touch /tmp/x.*--allow-shell"):
            run_file(path, folder=tmp_path / "runs")
        assert not (tmp_path / "runs").exists()
