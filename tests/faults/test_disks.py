"""Disks and folders that fail, as whoever types a command meets them: one line with the remedy."""

from __future__ import annotations

import errno
import pwd
from pathlib import Path

import pandas as pd
import pytest
import safetensors.torch
import torch
from typer.testing import CliRunner

from helpers import cli, fetching
from helpers import publish as publishing
from helpers.kept import kept
from helpers.paths import PlaceError, cache_folder
from helpers.results.store import ResultsStore


def _full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device", "/cache/file")


def _read_only(*_: object, **__: object) -> None:
    raise OSError(errno.EROFS, "Read-only file system", "/cache/file")


def _denied(*_: object, **__: object) -> None:
    raise PermissionError(errno.EACCES, "Permission denied", "/cache/file")


def _in_one_line(arguments: list[str], said: str) -> bool:
    result = CliRunner().invoke(cli.app, arguments)
    lines = result.output.strip().splitlines()
    assert result.exit_code == 1, result.output
    return len(lines) == 1 and lines[0].startswith("error: ") and said in lines[0]


@pytest.mark.parametrize(
    ("failing", "said"),
    [
        (_full, "free some space"),
        (_read_only, "can be read and written"),
        (_denied, "HELPERS_CACHE"),
    ],
)
def test_a_disk_that_fails_is_one_line(monkeypatch, tally, failing, said):
    monkeypatch.setattr(fetching, "fetch_by_name", failing)
    tally("disk: one line on the command line", _in_one_line(["fetch", "smollm2-135m"], said))
    monkeypatch.setattr(publishing, "publish", failing)
    tally("disk: one line on the command line", _in_one_line(["publish", "some.yaml"], said))


def test_a_cache_that_is_a_file_is_one_line(tmp_path, monkeypatch, tally):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path / "file"))
    fetched = _in_one_line(["fetch", "smollm2-135m"], "set HELPERS_CACHE")
    tally("disk: one line on the command line", fetched)


def test_a_store_that_is_a_file_is_one_line(tmp_path, monkeypatch, tally):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(
        publishing, "publish", lambda *_, **__: ResultsStore(tmp_path / "file").open({})
    )
    published = _in_one_line(["publish", "some.yaml"], "choose another results folder")
    tally("disk: one line on the command line", published)


def test_what_is_kept_on_a_full_disk_names_the_file_and_the_remedy(tmp_path, tally):
    """``/dev/full`` stands for the disk: each write to it fails."""
    path = tmp_path / "value.json"

    def full(scratch: Path) -> None:
        with open("/dev/full", "w") as device:
            device.write("x")

    with pytest.raises(PlaceError, match=r"value\.json.*No space left.*free some space"):
        kept(path, Path.read_text, full)
    tally("disk: nothing half is left behind", not list(tmp_path.iterdir()))

    def tensors(scratch: Path) -> None:
        safetensors.torch.save_file({"a": torch.zeros(2)}, "/dev/full/none")

    with pytest.raises(PlaceError, match=r"value\.json.*free some space"):
        kept(path, Path.read_text, tensors)
    tally("disk: nothing half is left behind", not list(tmp_path.iterdir()))


def test_a_damaged_part_of_a_store_that_is_only_read_is_passed_over(tmp_path, monkeypatch, tally):
    results = ResultsStore(tmp_path).open({})
    results.append(pd.DataFrame({"case_id": [1], "sum": [1.0]}))
    (part,) = results.folder.glob("scores-*")
    part.write_bytes(part.read_bytes()[:-1])
    for operation in ("replace", "unlink"):
        monkeypatch.setattr(Path, operation, _read_only)
    with pytest.warns(UserWarning, match="the records of its chunk will be computed again"):
        assert results.read().empty
    with pytest.raises(PlaceError, match=r"Read-only.*choose a folder that can be .*written"):
        results.append(pd.DataFrame({"case_id": [1], "sum": [1.0]}))
    tally("disk: a damaged part that is only read", True)


def test_the_cache_folder_is_made_where_it_can_be(tmp_path, monkeypatch):
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path / "new"))
    assert cache_folder("models").is_dir()


def test_without_a_home_folder_one_line_names_the_variable(monkeypatch, tally):
    """A container with a random user id has neither HOME nor an entry in passwd."""
    for variable in ("HELPERS_CACHE", "HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    fetched = _in_one_line(["fetch", "smollm2-135m"], "set HELPERS_CACHE")
    tally("disk: one line on the command line", fetched)
