"""Launchers: each shares processes out over nodes, and has the commands that start torchrun there.

Every launcher starts the same program on each node, `python -P -m engine.training.launchers FOLDER [NODE]`: torchrun,
with a connection to the parent. The folder is that of `engine.training.launch`; without its number a node takes
Slurm's. It reports which process failed first, and ends when the parent of the training does.
A node must reach the folder of the training and that of the text under the same paths, and have the same Python with
the same libraries there.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from engine.device import process_environment, python_command, python_environment, require_gpus
from engine.errors import TrainingError
from engine.training.ipc import Launch, ParentConnection, report_error, report_failure


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
    return python_command("engine.training.launchers", str(folder), *node)


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
    """The hosts of a hostfile; raises TrainingError with the line that cannot be read."""
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


_END_SECONDS = 10.0
_SIOCGIFADDR = 0x8915  # asks Linux for the address of a network interface


def main(folder: Path, node: int) -> int:
    """Runs this node's processes; returns the exit status."""
    launch = Launch.read(folder)
    os.environ.update(_environment(launch, node))
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main as torchrun

    parent, is_single = None, len(launch.num_processes) == 1
    try:
        parent = ParentConnection(launch, _terminate)
        parent.introduce("node", node, "" if is_single or node else _endpoint(parent))
        require_gpus(launch.num_processes[node], launch.device)
        options = _local(folder) if is_single else _joined(parent, launch, node)
    except Exception as error:
        report_error(folder, sum(launch.num_processes[:node]), error, parent)
        return 1
    count = f"--nproc-per-node={launch.num_processes[node]}"
    try:
        torchrun([count, "--rdzv-id=training", "--rdzv-backend=c10d", *options, "-m", launch.worker, str(folder)])
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        report_failure(folder, rank, failure.exitcode, failure.message, parent)
        return 1
    return 0


def _environment(launch: Launch, node: int) -> dict[str, str]:
    """For torchrun and its processes: cores shared out, and the GPUs that they have."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = launch.threads or max(1, cores // launch.num_processes[node])
    gpus = {"CUDA_VISIBLE_DEVICES": launch.gpus[node]} if launch.gpus[node] else {}
    return {**process_environment(threads), **gpus, **launch.variables}


def _local(folder: Path) -> list[str]:
    """On this machine only: the rendezvous uses files, so that nothing listens on the network."""
    loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")
    os.environ.update(
        GLOO_SOCKET_IFNAME=loopback,
        NCCL_SOCKET_IFNAME=loopback,
        TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1",  # torchrun would listen on all addresses
    )
    rendezvous = [f"--rdzv-endpoint={folder / 'rendezvous'}", "--rdzv-conf=store_type=file"]
    return ["--nnodes=1", "--local-addr=127.0.0.1", *rendezvous]


def _endpoint(parent: ParentConnection) -> str:
    """Where the first of several nodes listens: at the address by which it reaches the parent, which tells all."""
    with socket.create_server((parent.own_address, 0)) as listener:
        return "{}:{}".format(*listener.getsockname())


def _joined(parent: ParentConnection, launch: Launch, node: int) -> list[str]:
    """On several nodes: they meet at the first one."""
    address = parent.own_address
    if interface := _interface_of(address):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)
    endpoint = parent.answer().decode()
    conf = f"--rdzv-conf=is_host={'true' if node == 0 else 'false'}"
    return [f"--nnodes={len(launch.num_processes)}", f"--local-addr={address}", f"--rdzv-endpoint={endpoint}", conf]


def _interface_of(address: str) -> str:
    """The network interface with this address; empty if there is none."""
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has no address
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    return ""


def _terminate() -> None:
    """Has torchrun end its processes and then itself; ends it where it waits for another node that is lost."""
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_END_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2] if sys.argv[2:] else os.environ["SLURM_NODEID"])))
