"""The doctor tells what is here, what is damaged, and what a run will need; a problem is its exit status."""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import torch
import yaml
from typer.testing import CliRunner

from helpers import doctor
from helpers.cli import app
from helpers.doctor import Finding, Kind, findings_about_machine, needs_of, needs_of_file
from helpers.fetch import official_files
from helpers.models import weights
from helpers.params import notebook_of, read_params
from helpers.paths import PARAMS
from helpers.sweeps.drive import run_file
from helpers.values import NotebookParams, params_of

QUICK = PARAMS / "quick" / "03_editing_runs.yaml"
LLAMA = PARAMS / "paper" / "03_editing_runs" / "llama2-7b_peak-cf.yaml"
TABLE_3 = PARAMS / "sweeps" / "peak_llama2-7b.yaml"


@pytest.fixture(autouse=True)
def empty_machine(tmp_path, monkeypatch):
    """No data, nothing cached, no GPU; and no hub, as ``conftest`` sets offline mode."""
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HELPERS_DATA", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return tmp_path


@pytest.fixture
def params_file(tmp_path) -> Callable[..., Path]:
    """A params file of notebook 03 whose values are the quick profile's, but for those given."""

    def write(**values: Any) -> Path:
        file = tmp_path / "03_editing_runs.yaml"
        file.write_text(yaml.safe_dump(values), "utf-8")
        return file

    return write


def with_values(file: Path, values: dict[str, Any]) -> NotebookParams:
    """A params file's parameters, but for the values given."""
    return params_of(notebook_of(file), read_params(file) | values)


def texts(findings: list[Finding], *kinds: Kind) -> list[str]:
    return [finding.text for finding in findings if finding.kind in kinds]


def problems(file: Path) -> list[str]:
    return texts(needs_of_file(file), Kind.WRONG, Kind.LACKING)


def exit_code(*arguments: str) -> int:
    return CliRunner().invoke(app, ["doctor", *arguments]).exit_code


def test_report_on_a_bare_machine():
    lines = list(map(str, findings_about_machine()))
    assert any("GiB of disk free" in line for line in lines)
    missing = [line.split()[1].rstrip(":") for line in lines if "will be downloaded (" in line]
    assert sorted(missing) == sorted(official_files())  # each once
    assert "data peak-cf: will be downloaded (3.7 MB)" in lines
    (packages,) = [line for line in lines if line.startswith("packages: ")]
    assert all(f" {name} " in packages for name in ("numpy", "submitit", "ipywidgets"))
    assert "model smollm2-135m: not fetched yet" in "\n".join(lines)


def test_a_damaged_file_is_a_problem_of_runs_that_read_it(empty_machine, params_file):
    file = empty_machine / official_files()["peak-cf"].relative_path
    file.parent.mkdir()
    file.write_text("[]")
    (problem,) = [finding for finding in findings_about_machine() if finding.is_problem]
    assert str(problem).startswith("PROBLEM: data peak-cf: ")
    assert "not the published file" in problem.text
    assert exit_code() == 1
    assert exit_code(str(params_file(dataset="peak-cf"))) == 1
    assert exit_code(str(params_file(dataset="peak-mini-cf"))) == 0


def test_what_a_paper_run_needs():
    findings = needs_of_file(LLAMA)
    text = "\n".join(map(str, findings))
    assert "model llama2-7b: weights in float32 25.1 GiB" in text
    assert "to be made first: no MEND network llama2-7b" in text
    assert "data peak-cf: will be downloaded" in text
    assert "from the hub as meta-llama/Llama-2-7b-hf" in text
    assert "13 GB" in text
    assert "over wikipedia: made before the first edit" in text
    assert "time: unknown" in text
    assert texts(findings, Kind.WRONG) == []


def test_time_and_peak_memory_are_estimated():
    text = "\n".join(map(str, needs_of_file(QUICK)))
    (usual_time,) = re.findall(r"^# Usual time: (.+)$", QUICK.read_text(), re.MULTILINE)
    assert f"time: usually {usual_time}" in text
    # 134,515,008 weights; 2,048 tokens of 30 blocks, 16 · 576 + 4 · 1,536 values each, and 12 bytes
    # for each of 49,152 words; and a [1,536, 1,536] matrix at 12 bytes: 0.5, 4.6 and 0.0 GiB.
    assert (
        "peak memory of smollm2-135m: about 5.2 GiB by an estimate (weights 0.5, a pass of 2,048"
        " tokens 4.6, second moments 0.0)"
    ) in text


def test_a_run_that_can_begin_is_no_problem():
    """Also where everything is still to be downloaded."""
    (line,) = [n.text for n in needs_of_file(QUICK) if "moments over" in n.text]
    assert "second moments over self: made before the first edit" in line
    assert problems(QUICK) == []
    result = CliRunner().invoke(app, ["doctor", str(QUICK)])
    assert result.exit_code == 0
    assert "to be fetched: 92.9 MB as Python wheels" in result.output
    assert exit_code(str(PARAMS / "larger" / "03_editing_runs.yaml")) == 0  # the gate of run-larger


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:3"])
def test_a_gpu_that_is_not_here_is_a_problem(params_file, device, monkeypatch):
    file = params_file(device=device)
    (problem,) = problems(file)
    assert f"device {device!r} was asked for, but" in problem
    assert exit_code(str(file)) == 1
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_: (80 * 2**30, 80 * 2**30))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda *_: 0)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda *_: 0)
    assert bool(problems(file)) == (device == "cuda:3")


def test_too_little_memory_or_disk_is_a_problem(params_file, monkeypatch):
    free = {"memory": 2**30, "disk": 2**40}
    for module in (doctor, weights):
        monkeypatch.setattr(module, "free_bytes", lambda device: free["memory"])
    disk = SimpleNamespace(total=2**40, used=0)
    monkeypatch.setattr(
        shutil, "disk_usage", lambda folder: SimpleNamespace(**vars(disk), free=free["disk"])
    )
    file = params_file(model="smollm2-135m")
    assert problems(file) == []  # 0.5 GiB of weights; batches shrink
    assert any("so batches will be smaller" in each.text for each in needs_of_file(file))
    free["memory"] = 2**28
    (problem,) = problems(file)
    assert "weights take 0.5 GiB of memory in float32, and 0.2 are free on cpu" in problem
    assert problems(params_file(model="shape:llama2-7b", preset="paper", methods=["rome"])) != []
    free.update(memory=2**40, disk=2**27)  # 128 MiB
    (problem,) = problems(file)
    assert "model smollm2-135m take 0.2 GiB or more while fetched, 0.1 are free" in problem
    assert exit_code(str(file)) == 1
    larger = params_file(model="qwen2.5-coder-1.5b", dtype="bfloat16")
    free.update(memory=2**30, disk=2**33)  # 3.3 GiB of weights; 2 · 1.04 + 6.62 GiB of disk
    memory, disk_problem = problems(larger)
    assert "weights take 3.3 GiB of memory in bfloat16" in memory
    assert "take 8.7 GiB or more" in disk_problem


class _Hub(BaseHTTPRequestHandler):
    """A hub on this machine that has one model, keeps one behind terms, and never answers for one."""

    def do_HEAD(self) -> None:
        name = self.path.split("/")[2]
        status, reason = {
            "open": (200, ""),
            "gated": (403, "GatedRepo"),
            "nosuch": (404, "RepoNotFound"),
            "bare": (404, "EntryNotFound"),
            "ill": (500, ""),
        }.get(name, (200, ""))
        if name == "silent":
            time.sleep(3)
        self.send_response(status)
        self.send_header("ETag", '"1"')
        self.send_header("X-Repo-Commit", "0" * 40)
        self.send_header("Content-Length", "0")
        if reason:
            self.send_header("X-Error-Code", reason)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def hub(monkeypatch, tmp_path) -> Iterator[None]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    template = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", address)
    monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(doctor, "_PATIENCE", 0.5)
    yield
    server.shutdown()


@pytest.mark.parametrize(
    ("model", "kind", "message"),
    [
        ("org/open", Kind.NOTE, "hub: reached, org/open may be fetched"),
        ("org/gated", Kind.LACKING, r"org/gated is gated: accept .*/org/gated, then hf auth login"),
        ("org/nosuch", Kind.WRONG, "the hub has no model org/nosuch, or keeps it private"),
        ("org/bare", Kind.WRONG, "org/bare on the hub has no config.json"),
        ("org/ill", Kind.LACKING, "cannot be reached .*: connect, or name a folder"),
        ("org/silent", Kind.LACKING, "cannot be reached .*: connect, or name a folder"),
    ],
)
def test_access_to_the_hub(hub, params_file, model, kind, message):
    began = time.monotonic()
    findings = needs_of_file(params_file(model=model, preset="generic", methods=["rome"]))
    assert time.monotonic() - began < 10
    (found,) = [finding for finding in findings if re.search(message, finding.text)]
    assert found.kind is kind


def test_offline_mode_is_a_problem_only_where_the_hub_is_needed(params_file, tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(doctor, "_refusal", lambda name: pytest.fail("the hub was asked"))
    (problem,) = problems(params_file(model="org/name", preset="generic", methods=["rome"]))
    assert "org/name is not in the hub's cache, and offline mode is set" in problem
    assert problems(params_file(model="shape:gpt2-xl", preset="paper", methods=["rome"])) == []
    file = tmp_path / "file"
    file.write_text("{}")
    monkeypatch.setattr(doctor, "try_to_load_from_cache", lambda *_: str(file))
    assert problems(params_file(model="org/name", preset="generic", methods=["rome"])) == []


def test_terms_are_accepted_first(params_file):
    findings = needs_of_file(params_file(model="gemma3-270m"))
    (first,) = texts(findings, Kind.FIRST)
    assert first.endswith("then python -m helpers fetch gemma3-270m --accept-terms")


@pytest.mark.parametrize("model_type", ["nosuch", "mixtral"])  # unknown; not in our table
def test_a_configuration_that_cannot_be_used_is_a_problem(params_file, tmp_path, model_type):
    folder = tmp_path / "model"
    folder.mkdir()
    small = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 99}
    (folder / "config.json").write_text(json.dumps({"model_type": model_type, **small}))
    (problem,) = problems(params_file(model=str(folder), preset="generic", methods=["rome"]))
    assert "its config.json cannot be used" in problem
    assert "\n" not in problem


def test_a_model_that_fills_masks_has_an_estimate(tiny_masked, tmp_path):
    tiny_masked.network.save_pretrained(tmp_path / "bert")
    klob = PARAMS / "quick" / "05_klob_localisation.yaml"
    masked = {"model": str(tmp_path / "bert"), "masked": True, "published": []}
    findings = needs_of(with_values(klob, masked))
    assert texts(findings, Kind.WRONG, Kind.LACKING) == []
    assert any("a pass of 4,096 tokens" in finding.text for finding in findings)


def test_a_wrong_data_folder_is_said_once(empty_machine, monkeypatch):
    monkeypatch.setenv("HELPERS_DATA", str(empty_machine / "nowhere"))
    klob = needs_of_file(PARAMS / "paper" / "05_klob_localisation" / "llama2-7b.yaml")
    for findings in (list(findings_about_machine()), klob):
        (problem,) = texts(findings, Kind.WRONG, Kind.LACKING)
        assert "is not a folder: correct it or unset it" in problem


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(PARAMS.glob("paper/*/*.yaml")), ids=lambda path: path.stem)
def test_the_papers_params_name_what_there_is(path):
    wrong = texts(needs_of_file(path), Kind.WRONG)
    assert len(wrong) == (path.stem == "yago")  # a folder that users bring


@pytest.mark.slow
def test_a_dry_run_plans_without_network_data_or_network_of_mend(tmp_path):
    """It lists what the doctor lists about the same models and data."""
    lines, failed = run_file(TABLE_3, dry_run=True, folder=tmp_path / "runs")
    assert not failed
    assert not (tmp_path / "runs").exists()
    text = "\n".join(lines)
    assert "58 runs: 58 waiting\n26,595 of 26,595 edits left" in text  # 9 editors, 1,962 + 993
    for finding in needs_of(with_values(LLAMA, {"published": []})):
        told = f"before it can run here: {finding.text}" if finding.is_problem else str(finding)
        assert lines.count(told) == 1
    assert lines.count("data peak-t: will be downloaded (2.0 MB)") == 1
    elsewhere, _ = run_file(TABLE_3, dry_run=True, folder=tmp_path / "runs", engine="slurm")
    assert [line for line in elsewhere if "before it can run here" in line] == []


def test_statistics_of_held_out_requests_are_told():
    methods = ["ultraedit", "nas", "alphaedit", "memoir", "grace"]
    needs = needs_of(with_values(QUICK, {"methods": methods}))
    told = [str(finding) for finding in needs if "held-out requests" in str(finding)]
    assert [text.partition(": ")[0] for text in told] == ["UltraEdit", "NAS", "MEMOIR"]
    assert ["480" in told[0], "200" in told[1], "200" in told[2]] == [True, True, True]
