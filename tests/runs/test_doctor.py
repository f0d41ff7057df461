"""The doctor tells what is here, what is damaged, and what a run will need."""

from __future__ import annotations

import pytest
import torch

from helpers.data import knowgic, peak
from helpers.paths import PARAMS
from helpers.runs.doctor import needs, report
from helpers.runs.params import ParamsError


@pytest.fixture(autouse=True)
def empty_machine(tmp_path, monkeypatch):
    """No data, nothing cached."""
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HELPERS_DATA", str(tmp_path))
    return tmp_path


def test_report_on_a_bare_machine():
    lines = list(report())
    assert any(line.startswith("optional extras: book ") for line in lines)
    assert any("GiB of disk free" in line for line in lines)
    missing = [line for line in lines if line.endswith("will be downloaded")]
    named = {line.split()[1].rstrip(":") for line in missing}
    assert named >= {*peak.OFFICIAL, *(r.name for r in knowgic.LAYOUTS.values())}
    assert "model smollm2-135m: not fetched yet" in "\n".join(lines)


def test_a_damaged_file_is_called_so(empty_machine):
    file = empty_machine / peak.OFFICIAL["peak-cf"].relative_path
    file.parent.mkdir()
    file.write_text("[]")
    (line,) = [line for line in report() if line.startswith("data peak-cf:")]
    assert "PROBLEM" in line
    assert "not the published file" in line


def test_what_a_paper_run_needs(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    text = "\n".join(needs(PARAMS / "paper" / "03_editing_runs" / "llama2-7b_peak-cf.yaml"))
    assert "weights in float32 25.1 GiB; asks for cuda, but torch sees no GPU" in text
    assert "data peak-cf: will be downloaded" in text
    assert "records all" in text
    assert "memit+app" in text


def test_a_packaged_profile_needs_no_data():
    lines = list(needs(PARAMS / "quick" / "03_editing_runs.yaml"))
    assert not any(line.strip().startswith("data ") for line in lines)
    assert any("smollm2-135m" in line for line in lines)


def test_a_wrong_file_is_an_error(tmp_path):
    with pytest.raises(ParamsError, match="no params file"):
        list(needs(tmp_path / "03_editing_runs.yaml"))
