"""Disks and folders that fail, as whoever types a command meets them: one line with the remedy."""

from __future__ import annotations

import errno
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from helpers import UserError, cli
from helpers import publish as publishing
from helpers.results.store import ResultsStore


def _read_only(*_: object, **__: object) -> None:
    raise OSError(errno.EROFS, "Read-only file system", "/cache/file")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/cache/file"), "free space"),
        (OSError(errno.EROFS, "Read-only file system", "/cache/file"), "choose another folder"),
        (PermissionError(errno.EACCES, "Permission denied", "/cache/file"), "HELPERS_CACHE"),
        (UserError("the store cannot be used; choose another results folder"), "another results"),
    ],
)
def test_a_disk_that_fails_is_one_line(monkeypatch, error, said):
    def failing(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(publishing, "publish", failing)
    _in_one_line(["publish", "some.yaml"], said)


def test_a_cache_that_cannot_be_made_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path / "file"))
    _in_one_line(["fetch", "smollm2-135m"], "HELPERS_CACHE")


def _in_one_line(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(cli.app, arguments)
    (line,) = result.output.strip().splitlines()
    assert result.exit_code == 1
    assert line.startswith("error: ")
    assert said in line


def test_a_damaged_part_of_a_store_that_is_only_read_is_passed_over(tmp_path, monkeypatch):
    results = ResultsStore(tmp_path).open({})
    results.add({"scores": pd.DataFrame({"case_id": [1], "sum": [1.0]})})
    (part,) = results.folder.glob("scores-*")
    part.write_bytes(part.read_bytes()[:-1])
    for operation in ("replace", "unlink"):
        monkeypatch.setattr(Path, operation, _read_only)
    with pytest.warns(UserWarning, match="the records of its chunk will be computed again"):
        assert results.read().empty
    with pytest.raises(UserError, match=r"Read-only.*choose another folder"):
        results.add({"scores": pd.DataFrame({"case_id": [1], "sum": [1.0]})})
