"""A Slurm cluster of hosts that are network namespaces of this machine, which is its controller."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import network

SBIN = Path("/usr/sbin")


def missing() -> str:
    """Why this machine can have no such cluster; empty if it can."""
    if network.missing():
        return network.missing()
    has_all = shutil.which("srun") and (SBIN / "slurmctld").exists() and (SBIN / "slurmd").exists()
    return "" if has_all else "needs Slurm (Debian: slurm-wlm)"


@contextmanager
def cluster(hosts: list[network.Host]) -> Iterator[Path]:
    """Runs the cluster; gives its configuration, for the variable SLURM_CONF."""
    # A short path: Slurm makes Unix sockets below it.
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder, _running(hosts, Path(folder)) as conf:
        yield conf


@contextmanager
def _running(hosts: list[network.Host], folder: Path) -> Iterator[Path]:
    munge = {
        "key-file": "key",
        "socket": "munge",
        "pid-file": "munge.pid",
        "log-file": "munge.log",
        "seed-file": "seed",
    }
    options = [f"--{name}={folder / file}" for name, file in munge.items()]
    subprocess.run([SBIN / "mungekey", "--create", options[0].replace("key-file", "keyfile")], check=True)
    conf = folder / "slurm.conf"
    conf.write_text(_configuration(hosts, folder))
    commands = [
        [SBIN / "munged", "--force", "--foreground", *options],
        [SBIN / "slurmctld", "-D", "-f", conf],
        *([*_inside(host), SBIN / "slurmd", "-D", "-f", conf, "-N", host.name] for host in hosts),
    ]
    programs: list[subprocess.Popen[bytes]] = []
    with (folder / "slurm.log").open("ab") as log:
        for command in commands:
            programs.append(subprocess.Popen([*map(str, command)], stdin=subprocess.DEVNULL, stdout=log, stderr=log))
            if len(programs) == 1:
                _until(lambda: (folder / "munge").exists())
    try:
        _until(lambda: num_idle(conf) == len(hosts))
        yield conf
    finally:
        for program in reversed(programs):
            program.kill()
            program.wait()


def _configuration(hosts: list[network.Host], folder: Path) -> str:
    values = {
        "ClusterName": "workbench",
        "SlurmctldHost": f"{socket.gethostname()}({network.ADDRESS})",
        "AuthInfo": f"socket={folder / 'munge'}",
        "StateSaveLocation": folder / "state",
        "SlurmdSpoolDir": f"{folder / 'spool'}-%n",
        "SlurmdPidFile": f"{folder / 'slurmd'}-%n.pid",
        "SlurmctldPidFile": folder / "slurmctld.pid",
        "ProctrackType": "proctrack/pgid",
        "TaskPlugin": "task/none",
        "SlurmUser": "root",
        "SlurmdUser": "root",
        "MailProg": "/bin/true",
    }
    nodes = [f"NodeName={host.name} NodeAddr={host.address} CPUs=2" for host in hosts]
    lines = [f"{name}={value}" for name, value in values.items()]
    return "\n".join([*lines, *nodes, "PartitionName=all Nodes=ALL Default=YES State=UP", ""])


def _inside(host: network.Host) -> list[str]:
    """For a program that needs this machine's /sys, of which `ip netns exec` shows a part."""
    return ["nsenter", f"--net=/run/netns/{host.name}"]


def num_idle(conf: Path) -> int:
    """The nodes that no job has."""
    command = ["sinfo", "--noheader", "--Node", "--format=%T"]
    variables = os.environ | {"SLURM_CONF": str(conf)}
    listed = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    return listed.stdout.split().count("idle")


def _until(holds: Callable[[], object]) -> None:
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.1)
