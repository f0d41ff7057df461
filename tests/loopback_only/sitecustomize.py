"""Refuses connections to other machines, so that a test or a notebook that needs one fails loudly.

Python imports a module of this name as it starts. A command whose PYTHONPATH names this folder is
guarded with everything it starts in Python, notebooks' kernels included; ``tests/conftest.py``
imports it for the tests.
"""

import ipaddress
import socket

_connect, _connect_ex = socket.socket.connect, socket.socket.connect_ex


class OtherMachineError(PermissionError):
    """Raised where a connection would leave this machine."""


def _check(family: int, address: object) -> None:
    if family not in (socket.AF_INET, socket.AF_INET6) or not isinstance(address, tuple):
        return  # a socket of this machine's file system
    host = str(address[0])
    try:
        here = not host or ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        here = host == "localhost"
    if not here:
        raise OtherMachineError(f"connection to {host} refused: only this machine may be reached")


def _guarded_connect(self: socket.socket, address: object) -> None:
    _check(self.family, address)
    _connect(self, address)  # type: ignore[arg-type]


def _guarded_connect_ex(self: socket.socket, address: object) -> int:
    _check(self.family, address)
    return _connect_ex(self, address)  # type: ignore[arg-type]


socket.socket.connect = _guarded_connect  # type: ignore[method-assign, assignment]
socket.socket.connect_ex = _guarded_connect_ex  # type: ignore[method-assign, assignment]
