"""The ways to install name the same packages; importing the package stays light."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RUNTIME = [Requirement(text) for text in PROJECT["dependencies"]]
DEVELOPMENT = [Requirement(text) for text in PROJECT["optional-dependencies"]["dev"]]


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned() -> dict[str, Version]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonical(name): Version(version) for name, version in pairs}


def test_constraints_pin_every_dependency_within_its_bounds():
    pins = pinned()
    for requirement in RUNTIME + DEVELOPMENT:
        version = pins[canonical(requirement.name)]
        assert requirement.specifier.contains(version), requirement
        assert requirement.specifier, f"{requirement} needs a lower bound"


def test_conda_environment_names_the_same_packages():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    (pip,) = (d["pip"] for d in environment["dependencies"] if isinstance(d, dict))
    named = {canonical(Requirement(line).name) for line in pip if not line.startswith("--")}
    assert named == {canonical(requirement.name) for requirement in RUNTIME + DEVELOPMENT}
    assert "--constraint constraints.txt" in pip


def test_readme_gives_a_reason_for_every_runtime_dependency():
    rows = re.findall(r"^\| `([\w.-]+)` \| (.+) \|$", (ROOT / "README.md").read_text(), re.M)
    named = {canonical(name) for name, reason in rows if reason.strip()}
    assert named == {canonical(requirement.name) for requirement in RUNTIME}


def test_torch_is_pinned_alike_everywhere():
    version = str(pinned()["torch"])
    assert f"TORCH_VERSION := {version}" in (ROOT / "Makefile").read_text()
    assert f"torch=={version}+cpu" in (ROOT / "environment.yml").read_text()


@pytest.mark.parametrize("module", ["helpers", "helpers.cli", "helpers.paths"])
def test_light_imports(module):
    code = f"import {module}, sys; print(*sorted({{'torch', 'transformers', 'pandas'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_help_answers_without_heavy_imports():
    code = (
        "import sys; sys.argv = ['helpers', '--help']\n"
        "from helpers.cli import app\n"
        "try: app()\n"
        "except SystemExit: pass\n"
        "print('heavy' if 'torch' in sys.modules else 'light')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("light")
    for verb in ("run", "fetch", "figure", "doctor", "publish"):
        assert verb in done.stdout
