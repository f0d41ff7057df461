"""A one-node Slurm on the loopback device, for as long as a test needs it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "sinfo")
PACKAGES = "munge slurmctld slurmd slurm-client"
_SETTINGS = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
SlurmUser=root
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=32 State=UNKNOWN
PartitionName=test Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


class NoSlurmError(RuntimeError):
    """Raised with the reason why Slurm cannot run here."""


@contextmanager
def one_node_slurm(folder: Path) -> Iterator[Path]:
    """Start munge, slurmctld and slurmd; yields the configuration file for ``SLURM_CONF``.

    Args:
        folder: an empty folder with a short path (it holds a socket).

    Raises:
        NoSlurmError: not root on Linux, programs missing, or a daemon that does not come up.
    """
    _require()
    for name in ("state", "spool"):
        (folder / name).mkdir()
    host = socket.gethostname().partition(".")[0]
    settings = folder / "slurm.conf"
    settings.write_text(_SETTINGS.format(host=host, folder=folder, ports=_free_ports(2)))
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o400)
    munge = {"key-file": "key", "socket": "socket", "pid-file": "pid"}
    munge |= {"log-file": "log", "seed-file": "seed"}
    places = [f"--{option}={folder}/munge.{suffix}" for option, suffix in munge.items()]
    try:
        _start("munged", "--force", *places)
        _start("slurmctld", "-f", str(settings))
        _start("slurmd", "-f", str(settings))
        _wait_for_node(settings)
        yield settings
    finally:
        for name in ("slurmd", "slurmctld", "munge"):
            _stop(folder / f"{name}.pid")


def _require() -> None:
    if sys.platform != "linux" or os.geteuid() != 0:
        raise NoSlurmError("Slurm's daemons start as root on Linux only")
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        raise NoSlurmError(f"{', '.join(missing)} not installed: apt-get install {PACKAGES}")


def _start(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        raise NoSlurmError(f"{command[0]} does not start: {done.stderr.strip()}")


def _wait_for_node(settings: Path, seconds: float = 30) -> None:
    """Until the node is idle, which takes about a second."""
    environment = {**os.environ, "SLURM_CONF": str(settings)}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done = subprocess.run(
            ["sinfo", "--noheader", "--format=%T"], env=environment, capture_output=True, text=True
        )
        if done.stdout.strip() == "idle":
            return
        time.sleep(0.2)
    raise NoSlurmError(f"the node did not come up: {done.stdout}{done.stderr}".strip())


def _stop(pid_file: Path) -> None:
    """Ask a daemon of ours to end, by its own process number."""
    with suppress(FileNotFoundError, ProcessLookupError, ValueError):
        pid = int(pid_file.read_text())
        os.kill(pid, signal.SIGTERM)
        for _ in range(50):
            os.kill(pid, 0)
            time.sleep(0.1)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
