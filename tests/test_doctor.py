"""The doctor tells what is here, what is damaged, and what a run will need."""

from __future__ import annotations

import pytest
import torch

from helpers.doctor import needs, report
from helpers.fetch import official_files
from helpers.paths import PARAMS


@pytest.fixture(autouse=True)
def empty_machine(tmp_path, monkeypatch):
    """No data, nothing cached."""
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HELPERS_DATA", str(tmp_path))
    return tmp_path


def test_report_on_a_bare_machine():
    lines = list(report())
    assert any("GiB of disk free" in line for line in lines)
    missing = [line.split()[1].rstrip(":") for line in lines if "will be downloaded (" in line]
    assert sorted(missing) == sorted(official_files())  # each once
    assert "data peak-cf: will be downloaded (3.7 MB)" in lines
    (packages,) = [line for line in lines if line.startswith("packages: ")]
    assert all(f" {name} " in packages for name in ("numpy", "submitit", "ipywidgets"))
    assert "model smollm2-135m: not fetched yet" in "\n".join(lines)


def test_a_damaged_file_is_called_so(empty_machine):
    file = empty_machine / official_files()["peak-cf"].relative_path
    file.parent.mkdir()
    file.write_text("[]")
    (line,) = [line for line in report() if line.startswith("data peak-cf:")]
    assert "PROBLEM" in line
    assert "not the published file" in line


def test_what_a_paper_run_needs(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    text = "\n".join(needs(PARAMS / "paper" / "03_editing_runs" / "llama2-7b_peak-cf.yaml"))
    assert "weights in float32 25.1 GiB; asks for cuda, but torch sees no GPU" in text
    assert "to be made first: no MEND network llama2-7b" in text
    assert "data peak-cf: will be downloaded" in text
    assert "from the hub as meta-llama/Llama-2-7b-hf" in text
    assert "13 GB" in text
    assert "over wikipedia: made before the first edit" in text


def test_second_moments_are_announced():
    (line,) = (n for n in needs(PARAMS / "quick" / "03_editing_runs.yaml") if "moments" in n)
    assert "second moments over self: made before the first edit" in line


def test_a_wrong_data_folder_is_said_once(empty_machine, monkeypatch):
    monkeypatch.setenv("HELPERS_DATA", str(empty_machine / "nowhere"))
    for lines in (report(), needs(PARAMS / "paper" / "05_klob_localisation" / "gpt2-xl.yaml")):
        text = "\n".join(lines)
        assert text.count("PROBLEM") == 1
        assert "is not a folder: correct it or unset it" in text


@pytest.mark.parametrize("path", sorted(PARAMS.glob("paper/*/*.yaml")), ids=lambda path: path.stem)
def test_the_papers_params_name_what_there_is(path):
    problems = [line for line in needs(path) if "PROBLEM" in line]
    assert len(problems) == (path.stem == "yago")  # a folder that users bring
