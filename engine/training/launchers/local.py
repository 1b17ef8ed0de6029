"""All processes on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.training.launchers.base import Node, node_command


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
