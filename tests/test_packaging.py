"""The ways to install name the same packages; what is imported is declared; importing is light."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from helpers.models.weights import weights_folder

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "helpers"
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


def test_conda_environment_names_each_package_once():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    (pip,) = (d["pip"] for d in environment["dependencies"] if isinstance(d, dict))
    plain = [line for line in pip if not line.startswith("torch")]  # it has a line for each system
    assert len(plain) == len(set(plain))


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.cuda"])
def test_a_container_installs_the_pinned_package_and_ends_in_its_command(name):
    """Parsed, since few machines have docker: known instructions, files that exist, one command a step."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    steps = [line.split(" ", 1) for line in lines if line and not line.startswith("#")]
    assert [step for step, _ in steps] == [
        *("FROM", "WORKDIR", "COPY", "RUN", "RUN", "WORKDIR", "ENTRYPOINT"),
    ]
    assert steps[0][1].startswith("python:3.12")
    torch_step, package_step = (text.split() for step, text in steps if step == "RUN")
    assert re.fullmatch(rf"torch={{2,3}}{re.escape(str(pins()['torch']))}(\+cpu)?", torch_step[-1])
    assert torch_step[-1].endswith("+cpu") == (name == "Dockerfile")
    assert package_step[-1] == "."
    for step in (torch_step, package_step):
        assert step[:4] == ["python", "-m", "pip", "install"]
        assert step[step.index("--constraint") + 1] == "constraints.txt"
    assert steps[-1][1] == '["helpers"]'
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert {".git", ".venv", "runs"} <= set(ignored)


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
        "helpers.published",
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
def wheel(tmp_path_factory) -> Path:
    """The wheel that pip builds of what git has of the package."""
    folder = tmp_path_factory.mktemp("wheel")
    source, wheels = folder / "source", folder / "wheels"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    leave_out = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
    for name in ("helpers", "params", "notebooks", "figures"):
        shutil.copytree(ROOT / name, source / name, ignore=leave_out)
    flags = ["wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir"]
    command = [sys.executable, "-m", "pip", *flags, wheels, source]
    subprocess.run(command, check=True, capture_output=True)
    (built,) = wheels.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory) -> Path:
    """A fresh environment with the wheel; what it depends on is read from this one."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    flags = ["install", "--no-deps", "--no-index", "--no-compile"]
    command = [sys.executable, "-m", "pip", "--python", str(python), *flags, str(wheel)]
    subprocess.run(command, check=True, capture_output=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    # A line in a .pth file adds a folder, but not the .pth files in it: no editable install of this checkout.
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return folder


@pytest.fixture
def helpers_command(environment, tmp_path):
    """The installed console script, run in an empty folder; its output."""
    unset = ("PYTHONPATH", "HELPERS_FIGURES", "HELPERS_DATA")
    variables = {name: value for name, value in os.environ.items() if name not in unset}

    def run(*arguments: str | Path, cwd: Path = tmp_path) -> str:
        command = [environment / "bin" / "helpers", *arguments]
        done = subprocess.run(
            command, cwd=cwd, env=variables, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    return run


@pytest.mark.slow
def test_a_wheel_holds_the_modules_their_data_and_what_they_read_of_the_repository(environment):
    (installed,) = environment.glob("lib/python*/site-packages/helpers")
    for pattern in ("*.py", "packaged/**/*"):
        theirs = {str(p.relative_to(installed)) for p in installed.rglob(pattern) if p.is_file()}
        ours = {str(p.relative_to(PACKAGE)) for p in PACKAGE.rglob(pattern) if p.is_file()}
        assert ours
        assert theirs == ours
    for name, pattern in (("params", "*.yaml"), ("notebooks", "*.ipynb"), ("figures", "*.parquet")):
        ours = {str(p.relative_to(ROOT)) for p in (ROOT / name).rglob(pattern)}
        shipped = installed / "shipped"
        assert ours == {str(p.relative_to(shipped)) for p in (shipped / name).rglob(pattern)}


@pytest.mark.slow
def test_an_installed_package_answers_in_an_empty_folder(helpers_command, tmp_path):
    assert helpers_command("--version") == f"helpers {PROJECT['version']}\n"
    assert "04_neighbours" in helpers_command("figure", "--list")
    drawn = helpers_command("figure", "05_reading").splitlines()
    assert drawn == [str(tmp_path / "figures" / f"05_reading.{kind}") for kind in ("png", "svg")]
    assert all(map(os.path.exists, drawn))
    assert "| ROME+APP | ours |" in helpers_command("table", "peak_table_8")
    assert "runs" not in {path.name for path in tmp_path.iterdir()}


@pytest.mark.slow
def test_an_installed_package_edits_facts_with_a_models_own_preset(helpers_command, tiny, tmp_path):
    lm = tiny("llama")
    for part in (lm.network, lm.tokenizer):
        part.save_pretrained(tmp_path / "model")
    facts = "subject,prompt,target\nSudan,{} borders,Mali\nPeru,The capital of {} is,Oslo\n"
    (tmp_path / "facts.csv").write_text(facts)
    arguments = ["edit", "facts.csv", "--model", "model", "--editors", "ft-m,in-context"]
    output = helpers_command(*arguments, "--preset", "generic", "--save", "edits")
    assert output.splitlines()[-1] == "edits"
    assert len(list((tmp_path / "edits").glob("*.safetensors"))) == 4
    assert (tmp_path / "facts-edited.csv").read_text().count("\n") == 5
    assert (tmp_path / "runs" / "results").is_dir()  # in the user's folder, not the package's


@pytest.mark.slow
@pytest.mark.skipif(
    not weights_folder("smollm2-135m").exists(), reason="smollm2-135m is not fetched"
)
def test_an_installed_package_copies_its_notebooks_and_runs_a_params_file(
    helpers_command, tmp_path
):
    copied = helpers_command("notebooks", "lab")
    assert copied.startswith("lab/notebooks; open them with: cd lab")
    folder = tmp_path / "lab"
    assert (folder / "figures" / "01_one_record.png").is_file()
    params = folder / "params" / "quick" / "01_preliminaries.yaml"
    output = helpers_command("run", params, cwd=folder)
    assert "01_preliminaries: done in" in output
    (notebook,) = folder.glob("runs/01_preliminaries/*/notebook.ipynb")
    assert "ROME" in notebook.read_text("utf-8")


@pytest.mark.slow
def test_what_an_install_without_the_repository_cannot_do_is_said(environment, tmp_path):
    params = tmp_path / "03_editing_runs.yaml"
    params.write_text("records: 2\n")
    done = subprocess.run(
        [environment / "bin" / "helpers", "publish", params],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: publish writes next to the published tables: clone")
