"""The ways to install name the same packages; what is imported is declared; importing is light."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
RUNTIME = [Requirement(text) for text in PROJECT["dependencies"]]
EXTRAS = {
    extra: [Requirement(text) for text in texts]
    for extra, texts in PROJECT["optional-dependencies"].items()
}
EVERYTHING = RUNTIME + [requirement for extra in EXTRAS.values() for requirement in extra]
README = (ROOT / "README.md").read_text(encoding="utf-8")
REASONS = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")


def names(requirements: list[Requirement]) -> set[str]:
    return {canonicalize_name(requirement.name) for requirement in requirements}


def pins() -> dict[str, Version]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): Version(version) for name, version in pairs}


def imported(*folders: str) -> set[str]:
    """Names of the distributions that the modules of these folders import."""
    modules: set[str] = set()
    for folder in folders:
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    modules |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    modules.add(node.module.partition(".")[0])
    ours = {"helpers", "benchmarks", "tools", "book", "tests", "conftest"}
    distributions = packages_distributions()
    return {
        canonicalize_name(distributions.get(module, [module])[0])
        for module in modules - ours - sys.stdlib_module_names
    }


@pytest.mark.parametrize("requirement", EVERYTHING, ids=str)
def test_constraints_pin_every_dependency_within_its_bound(requirement):
    assert ">=" in str(requirement.specifier)
    assert requirement.specifier.contains(pins()[canonicalize_name(requirement.name)])


def test_conda_environment_names_the_same_packages():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    (pip,) = (d["pip"] for d in environment["dependencies"] if isinstance(d, dict))
    named = [Requirement(line) for line in pip if not line.startswith("--")]
    assert names(named) == names(RUNTIME + EXTRAS["dev"])
    assert "--constraint constraints.txt" in pip
    assert f"python{PROJECT['requires-python']}" in environment["dependencies"]


def test_torch_is_the_same_version_everywhere():
    version = str(pins()["torch"])
    assert f"TORCH_VERSION := {version}\n" in (ROOT / "Makefile").read_text(encoding="utf-8")
    environment = (ROOT / "environment.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"torch==([\d.]+)", environment)) == {version}
    assert set(re.findall(r"torch={2,3}([\d.]+)", README)) == {version}


def test_every_runtime_dependency_has_a_reason():
    rows = re.findall(r"^\| `([\w.-]+)` \| (.+) \|$", REASONS, re.M)
    assert sorted(canonicalize_name(name) for name, _ in rows) == sorted(names(RUNTIME))
    assert all(reason.strip() for _, reason in rows)


def test_what_the_package_imports_is_declared():
    assert imported("helpers") <= names(RUNTIME + EXTRAS["wikipedia"] + EXTRAS["harness"])
    of_bridges = EXTRAS["peft"] + EXTRAS["harness"]
    for_tests = RUNTIME + EXTRAS["dev"] + EXTRAS["book"] + of_bridges
    assert imported("tests", "benchmarks") <= names(for_tests)
    optional = EXTRAS["construction"]
    assert imported("tools") <= names(RUNTIME + EXTRAS["dev"] + optional)
    own = {canonicalize_name(path.stem) for path in (ROOT / "book").glob("*.py")}
    assert imported("book") <= names(RUNTIME + EXTRAS["book"]) | {"docutils"} | own


def test_the_package_needs_no_tool():
    modules = [*(ROOT / "helpers").rglob("*.py"), *(ROOT / "notebooks").glob("*.ipynb")]
    assert modules
    using = [str(m) for m in modules if re.search(r"\b(from|import) tools\b", m.read_text("utf-8"))]
    assert using == []


LIGHT = {
    "no pandas either": ("helpers", "helpers.cli", "helpers.paths", "helpers.results.figure"),
    "no model": (
        *(f"helpers.peak.{name}" for name in ("metrics", "tables", "figures")),
        *(f"helpers.klob.{name}" for name in ("metrics", "tables", "figures")),
        *(f"helpers.thinkedit.{name}" for name in ("metrics", "figures")),
        *(f"helpers.results.{name}" for name in ("statistics", "style", "text", "show")),
    ),
}


@pytest.mark.parametrize("which", LIGHT)
def test_imports_are_light(which):
    heavy = {"torch", "transformers"} | ({"pandas"} if "pandas" in which else set())
    code = f"import sys, {', '.join(LIGHT[which])}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """A folder with what pip would install of the package, but for an editable install."""
    folder = tmp_path_factory.mktemp("wheel")
    source, wheels, site = (folder / name for name in ("source", "wheels", "site"))
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    leave_out = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "helpers", source / "helpers", ignore=leave_out)
    flags = ["wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir"]
    command = [sys.executable, "-m", "pip", *flags, wheels, source]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = wheels.glob("*.whl")
    shutil.unpack_archive(wheel, site, format="zip")
    return site


def test_a_wheel_holds_the_modules_and_their_data(installed):
    for pattern in ("*.py", "packaged/**/*"):
        ours, theirs = (
            {str(p.relative_to(root)) for p in (root / "helpers").rglob(pattern) if p.is_file()}
            for root in (ROOT, installed)
        )
        assert ours
        assert theirs == ours


# Each needs params, notebooks, figures or runs, which lie beside the package in a checkout only.
NEEDS_THE_REPOSITORY = """
import os
import sys
from pathlib import Path

from typer.testing import CliRunner

import helpers
from helpers.cli import app
from helpers.editing.presets import read_hyperparameters
from helpers.paths import figures_folder
from helpers.results.archive import archive
from helpers.results.figure import published_figures, save
from helpers.results.show import show

os.environ.pop("HELPERS_FIGURES", None)
params, sweep = sys.argv[1:]
entries = {
    "archive": lambda: archive("peak").names(),
    "figures": lambda: published_figures(chapter="03"),
    "one figure": lambda: save("05_reading"),
    "figures' list": lambda: ("figure", "--list"),
    "shown figure": lambda: show("05_rsim", 0.6, 0.2, title="a fact"),
    "preset": lambda: read_hyperparameters("rome", "smollm2-135m", "tuned"),
    "generic preset": lambda: read_hyperparameters("rome", "an/other", "generic"),
    **{verb: lambda verb=verb: (verb, params) for verb in ("run", "publish", "doctor")},
    "sweep": lambda: ("sweep", sweep),
}
print(helpers.__file__)
for name, entry in entries.items():
    try:
        result = entry()
        if isinstance(result, tuple):
            result = CliRunner().invoke(app, result)
        print(name, "|", getattr(result, "output", result))
    except helpers.UserError as error:
        print(name, "|", "error:", error)
given = read_hyperparameters("ft-l", "an/other", {"layers": [3], "num_steps": 5, "lr": 0.1})
print("given values | layers", given.layers)
"""


def test_what_an_install_without_the_repository_lacks_is_said(installed, tmp_path):
    params, sweep = tmp_path / "03_editing_runs.yaml", tmp_path / "mine.yaml"
    params.write_text("records: 2\n")
    sweep.write_text("models: [smollm2-135m]\ndatasets: [peak-mini-cf]\neditors: [rome]\n")
    done = subprocess.run(
        [sys.executable, "-c", NEEDS_THE_REPOSITORY, str(params), str(sweep)],
        env={**os.environ, "PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    place, *lines = done.stdout.splitlines()
    assert Path(place).is_relative_to(installed)
    *entries, given = [line for line in lines if line]
    assert len(entries) == 11
    for line in entries:
        assert re.search(
            r"\| (error: )no .*: helpers was installed without its repository.*"
            r"pip install --editable \.$",
            line,
        ), line
    assert given == "given values | layers (3,)"
    assert sorted(path.name for path in installed.iterdir() if "dist-info" not in path.name) == [
        "helpers"
    ]
