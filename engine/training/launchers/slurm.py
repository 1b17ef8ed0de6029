"""Processes on nodes that Slurm allocates: `srun` waits for them, and ends the allocation when it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.training.launchers.base import Node, node_command


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
