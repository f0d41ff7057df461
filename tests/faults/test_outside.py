"""Endpoints, journals, disks and files from outside that misbehave."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
import yaml

from helpers.execute import place
from helpers.params import ParamsError, read_params
from helpers.paths import NOTEBOOKS, PARAMS, CacheError, cache_folder
from helpers.results.store import ResultsStore, StoreError
from helpers.sweeps.command import run_file
from helpers.sweeps.matrix import SweepError
from helpers.thinkedit.journal import Journal, JournalError
from helpers.triples import endpoint as module
from helpers.triples.endpoint import Endpoint, EndpointError, select_pages
from helpers.yaml_text import load_yaml

ROWS = {"results": {"bindings": [{"s": {"type": "literal", "value": "Peru"}}]}}
GOOD = json.dumps(ROWS).encode()


def _answer(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


WHOLE = _answer(GOOD)
RETRIED = {
    "cut connection": _answer(GOOD)[:-10],
    "no status line": b"nonsense\r\n\r\n",
    "nothing at all": b"",
    "rows that are no objects": _answer(b'{"results": {"bindings": [1, "x", null]}}'),
    "bindings that are no list": _answer(b'{"results": {"bindings": 3}}'),
    "deep JSON": _answer(b"[" * 100_000),
    "half a character": _answer(GOOD.replace(b'"value": "', rb'"value": "\ud800')),
    "half an answer": _answer(GOOD[:20]),
    "absurd Retry-After": _answer(b"", "503 Busy", "Retry-After: " + "9" * 400),
    "negative Retry-After": _answer(b"", "429 Slow", "Retry-After: -5"),
    "Retry-After in other digits": _answer(b"", "429 Slow", "Retry-After: soon"),
}
REFUSED = {
    "redirect to another host": _answer(b"", "302 Found", "Location: http://other.example/"),
    "redirect from POST to GET": _answer(b"", "303 See Other", "Location: /elsewhere"),
    "redirect that keeps POST": _answer(b"", "307 Temporary", "Location: http://other.example/"),
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
def test_an_endpoint_that_misbehaves_is_asked_again(played, tmp_path, tally, fault):
    waits: list[float] = []
    address = played([RETRIED[fault], WHOLE])
    asked = Endpoint(address, folder=tmp_path, sleep=waits.append, timeout=10)
    survived = asked.select("SELECT") == [{"s": "Peru"}] and 0 < max(waits) <= module.LONGEST_WAIT
    tally("endpoint: retried", survived)


@pytest.mark.parametrize("fault", REFUSED)
def test_an_endpoint_that_cannot_be_trusted_is_refused_with_the_reason(
    played, tmp_path, tally, monkeypatch, fault
):
    monkeypatch.setattr(module, "LARGEST_ANSWER", 2000)
    address = played([REFUSED[fault], WHOLE])
    asked = Endpoint(address, folder=tmp_path, sleep=lambda _: None, timeout=10)
    with pytest.raises(EndpointError, match=r"larger than|HTTP 30\d .*give that address|HTTP 404"):
        asked.select("SELECT")
    tally("endpoint: refused with a reason", not list(tmp_path.glob("*.json")))


@pytest.mark.parametrize("drip", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\n", b" "])
def test_a_slow_drip_ends(monkeypatch, tally, tmp_path, drip):
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
    tally("endpoint: refused with a reason", time.monotonic() - began < 5)


@pytest.mark.parametrize(("count", "ignored"), [(2, "OFFSET"), (3, "LIMIT")])
def test_pages_that_do_not_turn_end(tally, count, ignored):
    class Stubborn:
        def select(self, query: str) -> list[dict[str, str]]:
            return [{"s": str(i)} for i in range(count)]

    with pytest.raises(EndpointError, match=f"ignores {ignored}"):
        list(select_pages(Stubborn(), "SELECT ?s ORDER BY ?s", page=2))
    tally("endpoint: refused with a reason", True)


def test_a_journal_on_a_full_disk_keeps_whole_lines(tmp_path, tally):
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
    tally("journal: full disk", len(path.read_text().splitlines()) == 2)


def test_two_sessions_on_one_journal_do_not_fuse_lines(tmp_path, tally):
    path = tmp_path / "journal.jsonl"
    first = Journal(path, model="m", settings={})
    second = Journal(path, model="m", settings={})
    first.record("responses", {"prompt": "a"}, ["1"])
    with pytest.raises(JournalError, match="another session writes to it"):
        second.record("responses", {"prompt": "b"}, ["2"])
    tally("journal: two sessions", len(path.read_text().splitlines()) == 2)


def test_a_cache_or_store_that_is_a_file_is_one_line(tmp_path, monkeypatch, tally):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path / "file"))
    with pytest.raises(CacheError, match="set HELPERS_CACHE"):
        cache_folder("models")
    with pytest.raises(StoreError, match="choose another results folder"):
        ResultsStore(tmp_path / "file").open({})
    tally("cache or store that is a file", True)


def test_a_yaml_bomb_is_refused_in_few_words(tmp_path, tally):
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    for text in ("\n".join(lines), "a: &a [*a]", "[" * 50_000):
        with pytest.raises(yaml.YAMLError) as caught:
            load_yaml(text)
        tally("YAML bombs", len(str(caught.value)) < 1000)
    path = tmp_path / "03_editing_runs.yaml"
    path.write_text(f"model: [{', '.join(['x' * 1000] * 900)}]")
    with pytest.raises(ParamsError) as caught_params:
        read_params(path)
    tally("YAML bombs", len(str(caught_params.value)) < 1000)


def test_shell_in_a_sweep_file_is_printed_and_refused(tmp_path, tally):
    quick = yaml.safe_load((PARAMS / "sweeps" / "quick.yaml").read_text("utf-8"))
    for slurm in ({"slurm_setup": ["touch /tmp/x"]}, {"slurm_comment": "a\ntouch /tmp/x"}):
        path = tmp_path / "sweep.yaml"
        path.write_text(yaml.safe_dump({**quick, "slurm": slurm}), "utf-8")
        lines, _ = run_file(path, dry_run=True)
        assert any("shell: " in line and "touch /tmp/x" in line for line in lines)
        with pytest.raises(SweepError, match=r"touch /tmp/x.*--allow-shell"):
            run_file(path, folder=tmp_path / "runs")
        tally("shell in a sweep file", not (tmp_path / "runs").exists())


def test_braces_in_a_name_do_not_redirect_the_output(tmp_path, tally):
    notebook = NOTEBOOKS / "03_editing_runs.ipynb"
    planned = place(Path("{model}.yaml"), {"model": "../x"}, notebook=notebook, folder=tmp_path)
    tally("braces in a params file's name", "{" not in str(planned.output.relative_to(tmp_path)))
    assert os.path.commonpath([planned.output, tmp_path]) == str(tmp_path)
