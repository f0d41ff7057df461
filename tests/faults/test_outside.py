"""Journals and files from outside that misbehave."""

from __future__ import annotations

import resource
import signal

import pytest
import yaml

from helpers import UserError
from helpers.paths import PARAMS
from helpers.sweeps.drive import run_file
from helpers.thinkedit.grow.pipeline import Journal


def test_a_journal_on_a_full_disk_keeps_whole_lines(tmp_path):
    """A file may grow to so many bytes: the write that goes beyond is cut there, as on a full disk."""

    path = tmp_path / "journal.jsonl"
    journal = Journal(path, {"model": "m"})
    whole = path.read_bytes()
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 20, old[1]))
        with pytest.raises(UserError, match="what is finished is kept"):
            journal.record("responses", {"prompt": "x" * 100}, ["y"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)
    with pytest.warns(UserWarning, match="unfinished last line"):
        again = Journal(path, {"model": "m"})
    assert path.read_bytes() == whole
    again.record("responses", {"prompt": "x"}, ["y"])
    assert len(path.read_text().splitlines()) == 2


def test_two_sessions_on_one_journal_do_not_fuse_lines(tmp_path):
    path = tmp_path / "journal.jsonl"
    first = Journal(path, {"model": "m"})
    second = Journal(path, {"model": "m"})
    first.record("responses", {"prompt": "a"}, ["1"])
    with pytest.raises(UserError, match="another session writes to it"):
        second.record("responses", {"prompt": "b"}, ["2"])
    assert len(path.read_text().splitlines()) == 2


def test_shell_in_a_sweep_file_is_printed_and_refused(tmp_path):
    quick = yaml.safe_load((PARAMS / "sweeps" / "quick.yaml").read_text("utf-8"))
    for slurm in ({"slurm_setup": ["touch /tmp/x"]}, {"slurm_comment": "a\ntouch /tmp/x"}):
        path = tmp_path / "sweep.yaml"
        path.write_text(yaml.safe_dump({**quick, "slurm": slurm}), "utf-8")
        lines, _ = run_file(path, dry_run=True)
        assert any("shell: " in line and "touch /tmp/x" in line for line in lines)
        with pytest.raises(UserError, match=r"touch /tmp/x.*--allow-shell"):
            run_file(path, folder=tmp_path / "runs")
        assert not (tmp_path / "runs").exists()
