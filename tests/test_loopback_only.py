"""The guard of tests and of .ci/run: this machine can be reached, others cannot."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from helpers.paths import PARAMS, REPOSITORY


@pytest.mark.parametrize("address", ["192.0.2.1", "8.8.8.8", "example.org"])
def test_other_machines_are_refused(address):
    with socket.socket() as mine, pytest.raises(PermissionError, match=f"{address} refused"):
        mine.connect((address, 443))
    with socket.socket() as mine, pytest.raises(PermissionError):
        mine.connect_ex((address, 443))


def test_a_command_alone_has_neither_data_nor_other_machines():
    code = (
        "import os, socket\n"
        "assert not {'HELPERS_DATA', 'HELPERS_REFERENCE'} & os.environ.keys()\n"
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "socket.create_connection(server.getsockname(), timeout=5)\n"
        "print('this machine is there')\n"
        "socket.create_connection(('192.0.2.1', 80), timeout=5)"
    )
    environment = {**os.environ, "HELPERS_DATA": "somewhere", "HELPERS_REFERENCE": "somewhere"}
    command = [str(REPOSITORY / ".ci" / "alone"), sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout == "this machine is there\n", done.stderr
    assert "only this machine may be reached" in done.stderr


def test_the_first_pass_of_ci_is_a_new_users():
    lines = (REPOSITORY / ".ci" / "run").read_text("utf-8").splitlines()
    data = next(number for number, line in enumerate(lines) if "HELPERS_DATA=" in line)
    assert {".ci/alone make run", ".ci/alone make test"} <= set(lines[:data])
    assert any("pytest" in line and "-m data" in line for line in lines[data:])


def test_make_run_executes_every_quick_profile():
    command = ["make", "--dry-run", "--directory", str(REPOSITORY), "run"]
    planned = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in planned.splitlines() if " -m helpers run " in line]
    profiles = {f"params/quick/{file.name}" for file in (PARAMS / "quick").glob("*.yaml")}
    assert {word for word in line.split() if word.endswith(".yaml")} == profiles
