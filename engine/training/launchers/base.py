"""What a launcher is: it shares processes out over nodes and has the commands that start torchrun there.

Every launcher starts the same program on each node, `engine.training.elastic_launcher`, which connects to the parent.
A node must reach the folder of the training and that of the text under the same paths, and have the same Python with
the same libraries there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from engine.subprocesses import python_command


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
