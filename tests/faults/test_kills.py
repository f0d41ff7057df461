"""A kill at every file operation of everything that is kept: the next process reads what was meant."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from helpers.fetch import Resource, locate
from helpers.kept import kept, kept_at
from helpers.models import packaged_weights
from helpers.models.packaged_weights import PACKAGED_WEIGHTS, PackagedWeights, prepare
from helpers.results.archive import About, Archive
from helpers.results.store import ResultsStore
from helpers.triples.endpoint import Endpoint

# What pathlib, shutil and tempfile do to files in the end, and the two ways of writing a small one.
_OPERATIONS = [(os, name) for name in ("replace", "rename", "link", "unlink", "mkdir", "rmdir")]
_OPERATIONS += [(Path, name) for name in ("write_text", "write_bytes")]


def killed_at(number: int, work: Callable[[], object]) -> bool:
    """Do the work in a process that dies, as by SIGKILL, before its n-th file operation; False where
    it did not come to that many."""
    child = os.fork()
    if child == 0:
        left = [number]

        def dying(original: Callable[..., Any]) -> Callable[..., Any]:
            def operate(*arguments: Any, **options: Any) -> Any:
                left[0] -= 1
                if left[0] < 0:
                    os._exit(9)
                return original(*arguments, **options)

            return operate

        for owner, name in _OPERATIONS:
            setattr(owner, name, dying(getattr(owner, name)))
        try:
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 9)
    return status == 9


@dataclass(frozen=True)
class Kept:
    """Something that is kept in a folder.

    ``before`` is what was there, ``work`` is killed, ``whole`` says whether what the next process
    finds is whole, and ``least`` how many file operations the work has at the least.
    """

    work: Callable[[Path], object]
    whole: Callable[[Path], bool]
    before: Callable[[Path], object] = lambda folder: None
    least: int = 3


# --- cached files -----------------------------------------------------------------------------------


def _keep(folder: Path) -> int:
    path = folder / "value.json"
    return kept(path, lambda file: int(file.read_text()), lambda file: file.write_text("7"))


def _damaged(folder: Path) -> None:
    _keep(folder)
    kept_at(folder / "value.json").write_text("8")


# --- the results store ------------------------------------------------------------------------------


def _table(case_id: int) -> pd.DataFrame:
    return pd.DataFrame({"case_id": [case_id], "sum": [float(case_id)]})


def _add(folder: Path) -> None:
    results = ResultsStore(folder).open({"n": 1})
    for case_id in (1, 2):
        if case_id not in results.done():
            results.add({"edits": _table(case_id), "scores": _table(case_id)})


def _added(folder: Path) -> bool:
    _add(folder)
    results = ResultsStore(folder).open({"n": 1})
    return results.read()["sum"].tolist() == [1.0, 2.0] == results.read("edits")["sum"].tolist()


# --- published runs ---------------------------------------------------------------------------------


def _publish(folder: Path, value: float) -> None:
    table = pd.DataFrame({"method": ["rome"], "AFF": [value]})
    tables = {"scores": table, "edits": table}
    Archive(folder).put("run", tables, About({"model": "tiny"}), by=["method"])


def _published(folder: Path) -> bool:
    """The run is as it was or as it becomes, and publishing again ends it."""

    def found() -> list[list[float]]:
        return [table["AFF"].tolist() for table in Archive(folder).get("run").tables.values()]

    at_first = found()
    _publish(folder, 2.0)
    files = {path.name for path in (folder / "run").glob("[!.]*")}
    whole = at_first in ([[1.0], [1.0]], [[2.0], [2.0]]) and found() == [[2.0], [2.0]]
    return whole and files == {"about.json", "scores.parquet", "edits.parquet"}


# --- downloads, packaged weights, answers of endpoints ----------------------------------------------

_ROWS = {"results": {"bindings": [{"s": {"type": "literal", "value": "Peru"}}]}}
_CONTENT = json.dumps(_ROWS).encode()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server that answers everything with the same rows."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(200)
            self.send_header("Content-Length", str(len(_CONTENT)))
            self.end_headers()
            self.wfile.write(_CONTENT)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/rows.json"
        server.shutdown()


def _remote(address: str) -> dict[str, Kept]:
    digest = hashlib.sha256(_CONTENT).hexdigest()
    rows = Resource(
        name="rows", relative_path="a/rows.json", url=address, sha256=digest, licence="none"
    )

    def download(folder: Path) -> bytes:
        os.environ["HELPERS_CACHE"] = str(folder)
        return locate(rows).read_bytes()

    def ask(folder: Path) -> Any:
        return Endpoint(address, folder=folder).select("SELECT")

    return {
        "downloads": Kept(download, lambda folder: download(folder) == _CONTENT),
        "answers of endpoints": Kept(ask, lambda folder: ask(folder) == [{"s": "Peru"}], least=2),
    }


def _prepare(folder: Path) -> Path:
    os.environ["HELPERS_CACHE"] = str(folder)
    return prepare("small")


def _prepared(folder: Path) -> bool:
    made = _prepare(folder)
    return all((made / name).read_text() == name for name in _FILES)


def _spoiled(folder: Path) -> None:
    (_prepare(folder) / _FILES[0]).write_text("another")


_FILES = ("model.safetensors", "tokenizer.json")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A packaged model of two small files."""

    def dequantise(_: Path, folder: Path) -> None:
        folder.mkdir()
        for name in _FILES:
            (folder / name).write_text(name)

    weights = PackagedWeights(requirements=(), members=(), sha256="0" * 64, licence="MIT")
    monkeypatch.setitem(PACKAGED_WEIGHTS, "small", weights)
    monkeypatch.setattr(packaged_weights, "_assemble", lambda *_: tmp_path)
    monkeypatch.setattr(packaged_weights, "_dequantise", dequantise)
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path))
    monkeypatch.delenv("HELPERS_DATA", raising=False)


KEPT = {
    "cached files": Kept(_keep, lambda folder: _keep(folder) == 7),
    "damaged cached files": Kept(_keep, lambda folder: _keep(folder) == 7, _damaged),
    "results store": Kept(_add, _added, least=5),
    "publishing": Kept(lambda f: _publish(f, 2.0), _published, lambda f: _publish(f, 1.0)),
    "packaged weights": Kept(_prepare, _prepared),
    "damaged packaged weights": Kept(_prepare, _prepared, _spoiled),
}


@pytest.mark.parametrize("name", [*KEPT, "downloads", "answers of endpoints"])
def test_a_kill_at_every_file_operation(small, address, tmp_path, tally, name):
    what = {**KEPT, **_remote(address)}[name]
    number, killed = 0, True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while killed:
            folder = tmp_path / str(number)
            folder.mkdir()
            what.before(folder)
            killed = killed_at(number, lambda f=folder: what.work(f))
            tally(f"killed at a file operation: {name}", what.whole(folder))
            number += 1
    assert number > what.least
