"""Processes on the machines of a hostfile, started by ssh or another remote shell.

A hostfile is that of Open MPI and DeepSpeed: lines such as `gpu1 slots=4`.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from engine.errors import TrainingError
from engine.subprocesses import python_environment
from engine.training.launchers.base import Node, node_command

SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5")
_LINE = re.compile(
    r"(?P<name>[A-Za-z0-9_][\w.@-]{0,58})(?:\s+slots\s*=\s*(?P<slots>[1-9]\d{0,3}))?(?:\s+max[-_]slots\s*=\s*\d+)?\Z"
)


@dataclass(frozen=True)
class Host:
    """A machine and how many processes it takes; the first ones have its first GPUs unless `gpus` names them."""

    name: str
    slots: int = 1
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True)
class RemoteShellLauncher:
    """Fills the hosts in their order. The shell gets a host and a command, as ssh does."""

    hosts: tuple[Host, ...]
    address: str
    shell: tuple[str, ...] = SSH
    private_variables: tuple[str, ...] = ()

    def nodes(self, num_processes: int) -> list[Node]:
        """As many hosts as it takes."""
        slots = sum(host.slots for host in self.hosts)
        if num_processes > slots:
            raise TrainingError(
                f"The hostfile has {slots} slots, but the training {num_processes} processes.",
                "Choose fewer processes, or add hosts or slots to the hostfile.",
            )
        nodes = []
        for host in self.hosts:
            taken = min(host.slots, num_processes)
            num_processes -= taken
            if taken:
                nodes.append(Node(host.name, taken, ",".join(host.gpus[:taken])))
        return nodes

    def commands(self, nodes: Sequence[Node], folder: Path) -> list[list[str]]:
        """A remote shell for each host."""
        variables = [f"{name}={value}" for name, value in python_environment().items()]
        return [
            [*self.shell, node.name, shlex.join(["env", *variables, *node_command(folder, str(number))])]
            for number, node in enumerate(nodes)
        ]


def slots_of(hosts: Sequence[Host]) -> list[str]:
    """One name for each slot, such as gpu1/0."""
    return [f"{host.name}/{number}" for host in hosts for number in range(host.slots)]


def hosts_of(slots: Sequence[str]) -> tuple[Host, ...]:
    """The hosts of slots, each with the GPUs of their numbers."""
    gpus: dict[str, list[str]] = {}
    for slot in slots:
        name, _, number = slot.rpartition("/")
        gpus.setdefault(name, []).append(number)
    return tuple(Host(name, len(numbers), tuple(numbers)) for name, numbers in gpus.items())


def reachable_hosts(hosts: Iterable[str], shell: Sequence[str], folder: Path, seconds: float = 10.0) -> set[str]:
    """The names of the hosts that have this Python and the folder, and say so within some seconds; all at once."""
    command = f"cd {shlex.quote(str(folder))} && exec {shlex.join([sys.executable, '-S', '-c', ''])}"
    null = subprocess.DEVNULL
    tried = {
        name: subprocess.Popen([*shell, name, command], stdin=null, stdout=null, stderr=null, process_group=0)
        for name in set(hosts)
    }
    until, there = time.monotonic() + seconds, set()
    for name, program in tried.items():
        with suppress(subprocess.TimeoutExpired):
            if program.wait(max(0.0, until - time.monotonic())) == 0:
                there.add(name)
        program.kill()
        program.wait()
    return there


def read_hostfile(path: Path) -> tuple[Host, ...]:
    """The hosts of a hostfile; raises TrainingError with the line that is none."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise TrainingError(f"The hostfile {path} cannot be read: {error}.") from None
    hosts = []
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        match = _LINE.match(text)
        if match is None:
            raise TrainingError(
                f"Line {number} of the hostfile {path} must be a host and its slots, but is “{text[:80]}”.",
                "Write it as in: gpu1 slots=4",
            )
        hosts.append(Host(match["name"], int(match["slots"] or 1)))
    names = [host.name for host in hosts]
    if not hosts or len(set(names)) < len(names):
        raise TrainingError(f"The hostfile {path} must name at least one host, and each of them once.")
    return tuple(hosts)
