"""The files for people who carry on the work: commit hooks, citation, changelog."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest
import yaml

import helpers
from helpers.paths import REPOSITORY

CONFIG = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text("utf-8"))
HOOKS = {hook["id"]: hook for repo in CONFIG["repos"] for hook in repo["hooks"]}


@pytest.mark.parametrize("hook", HOOKS.values(), ids=HOOKS.keys())
def test_a_hook_runs_a_tool_of_the_active_environment(hook):
    python, flag, tool, *arguments = shlex.split(hook["entry"])
    assert (hook["language"], python, flag) == ("system", "python", "-m")
    done = subprocess.run([sys.executable, "-m", tool, "--version"], capture_output=True)
    assert done.returncode == 0, done.stderr
    if not hook.get("pass_filenames", True):
        assert all((REPOSITORY / argument).exists() for argument in arguments)


def test_the_citation_is_whole_and_of_this_version():
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text("utf-8"))
    assert {"cff-version", "message", "title", "authors", "abstract"} <= citation.keys()
    assert citation["version"] == helpers.__version__
    papers = citation["references"]
    assert len(papers) == 3
    assert all(paper["authors"] and paper["title"] and paper["url"] for paper in papers)
