"""The reading site, built once for all its tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.paths import REPOSITORY


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    pytest.importorskip("sphinx", reason="needs the extra 'book'")
    pytest.importorskip("myst_nb", reason="needs the extra 'book'")
    pytest.importorskip("furo", reason="needs the extra 'book'")
    if built := os.environ.get("HELPERS_SITE"):  # one that is there already saves minutes
        return Path(built)
    folder = tmp_path_factory.mktemp("book")
    done = subprocess.run(
        [sys.executable, REPOSITORY / "book" / "build.py", folder], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stderr == ""
    return folder / "html"
