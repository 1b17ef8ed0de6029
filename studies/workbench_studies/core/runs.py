"""One seed of a replication, and its names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Run:
    """One seed of a replication; the names of all that it makes begin with that of its seed model."""

    name: str
    seed: int

    @property
    def seed_model(self) -> str:
        return f"{self.name}-s{self.seed}"
