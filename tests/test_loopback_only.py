"""The guard of tests and of .ci/run: this machine can be reached, others cannot."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from helpers.paths import REPOSITORY


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
