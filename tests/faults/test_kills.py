"""A kill at every file operation of the store and of publishing: the next process reads what was meant."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from helpers.results.archive import About, Archive
from helpers.results.publish import Part, Publication, publish_parts
from helpers.results.store import ResultsStore

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
    def part(name: str) -> Part:
        return Part(name, {"AFF": value}, lambda: pd.DataFrame({"AFF": [value]}))

    parts = [part("scores"), part("edits")]
    publish_parts(Publication("run", About({"model": "tiny"}), parts), Archive(folder))


def _published(folder: Path) -> bool:
    """Every part is as it was or as it becomes, and publishing again ends it."""

    def found() -> list[tuple[float, float]]:
        run = Archive(folder).get("run")
        made = [run.about.settings[name]["AFF"] for name in run.tables]
        return list(zip((table["AFF"].item() for table in run.tables.values()), made, strict=True))

    at_first = found()
    _publish(folder, 2.0)
    whole = set(at_first) <= {(1.0, 1.0), (2.0, 2.0)} and found() == [(2.0, 2.0), (2.0, 2.0)]
    files = {path.name for path in (folder / "run").glob("[!.]*")}
    return whole and files == {"about.json", "scores.parquet", "edits.parquet"}


KEPT = {
    "results store": Kept(_add, _added, least=5),
    "publishing": Kept(lambda f: _publish(f, 2.0), _published, lambda f: _publish(f, 1.0)),
}


@pytest.mark.parametrize("name", KEPT)
def test_a_kill_at_every_file_operation(tmp_path, name):
    what = KEPT[name]
    number, killed = 0, True
    while killed:
        folder = tmp_path / str(number)
        folder.mkdir()
        what.before(folder)
        killed = killed_at(number, lambda f=folder: what.work(f))
        assert what.whole(folder), number
        number += 1
    assert number > what.least
