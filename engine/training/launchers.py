"""Launchers: each shares processes out over nodes, and has the commands that start torchrun there.

Every launcher starts the same program on each node, `engine.training.elastic_launcher`, which connects to the parent.
A node must reach the folder of the training and that of the text under the same paths, and have the same Python with
the same libraries there.
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
from typing import Protocol

from engine.errors import TrainingError
from engine.subprocesses import python_command, python_environment


@dataclass(frozen=True)
class Node:
    """A machine's part of a training."""

    name: str  # for messages
    num_processes: int
    gpus: str = ""  # CUDA_VISIBLE_DEVICES there; empty: all of its GPUs


class Launcher(Protocol):
    """Where the processes of a training run."""

    @property
    def address(self) -> str:
        """The address of this machine that the nodes connect to; empty if all processes run on this machine."""

    @property
    def private_variables(self) -> tuple[str, ...]:
        """Prefixes of environment variables that other machines do not get."""

    def nodes(self, num_processes: int) -> list[Node]:
        """Shares the processes out over nodes; raises TrainingError if there is no place for them."""

    def commands(self, nodes: Sequence[Node], folder: Path) -> list[list[str]]:
        """The programs that run torchrun on the nodes; one ends with a status other than 0 if its torchrun failed."""


def node_command(folder: Path, *node: str) -> list[str]:
    """The command to run on a node; without its number that is Slurm's."""
    return python_command("engine.training.elastic_launcher", str(folder), *node)


@dataclass(frozen=True)
class LocalLauncher:
    """Starts torchrun here, where nothing listens on the network."""

    address: str = ""
    private_variables: tuple[str, ...] = ()

    def nodes(self, num_processes: int) -> list[Node]:
        """This machine."""
        return [Node("this machine", num_processes)]

    def commands(self, nodes: Sequence[Node], folder: Path) -> list[list[str]]:
        """torchrun."""
        return [node_command(folder, str(number)) for number in range(len(nodes))]


@dataclass(frozen=True)
class SlurmLauncher:
    """Asks for nodes with `options` of srun, such as --partition=gpu."""

    address: str
    processes_per_node: int = 1
    needs_gpus: bool = True  # one for each process
    options: tuple[str, ...] = ()
    private_variables: tuple[str, ...] = ()

    def nodes(self, num_processes: int) -> list[Node]:
        """Nodes with the same number of processes each, but for the last."""
        each = self.processes_per_node
        full, rest = divmod(num_processes, each)
        counts = [each] * full + [rest] * bool(rest)
        return [Node(f"Slurm node {number}", count) for number, count in enumerate(counts)]

    def commands(self, nodes: Sequence[Node], folder: Path) -> list[list[str]]:
        """One srun, which starts torchrun on each node and ends all of them if one fails."""
        count = len(nodes)
        request = [f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", "--kill-on-bad-exit=1"]
        if self.needs_gpus:
            request.append(f"--gpus-per-node={nodes[0].num_processes}")
        return [["srun", *request, *self.options, *node_command(folder)]]


SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5")
_LINE = re.compile(
    r"(?P<name>[A-Za-z0-9_][\w.@-]{0,58})(?:\s+slots\s*=\s*(?P<slots>[1-9]\d{0,3}))?(?:\s+max[-_]slots\s*=\s*\d+)?\Z"
)


@dataclass(frozen=True)
class RemoteHost:
    """A machine and how many processes it takes; the first ones have its first GPUs unless `gpus` names them."""

    name: str
    slots: int = 1
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True)
class RemoteShellLauncher:
    """Fills the hosts in their order. The shell gets a host and a command, as ssh does."""

    hosts: tuple[RemoteHost, ...]
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


def slots_of(hosts: Sequence[RemoteHost]) -> list[str]:
    """One name for each slot, such as gpu1/0."""
    return [f"{host.name}/{number}" for host in hosts for number in range(host.slots)]


def hosts_of(slots: Sequence[str]) -> tuple[RemoteHost, ...]:
    """The hosts of slots, each with the GPUs of their numbers."""
    gpus: dict[str, list[str]] = {}
    for slot in slots:
        name, _, number = slot.rpartition("/")
        gpus.setdefault(name, []).append(number)
    return tuple(RemoteHost(name, len(numbers), tuple(numbers)) for name, numbers in gpus.items())


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


def read_hostfile(path: Path) -> tuple[RemoteHost, ...]:
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
                f"Line {number} of the hostfile {path} must be a host and its slots; got “{text[:80]}”.",
                "Write it as in: gpu1 slots=4",
            )
        hosts.append(RemoteHost(match["name"], int(match["slots"] or 1)))
    names = [host.name for host in hosts]
    if not hosts or len(set(names)) < len(names):
        raise TrainingError(f"The hostfile {path} must name at least one host, and each of them once.")
    return tuple(hosts)
