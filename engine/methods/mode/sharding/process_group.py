"""The process group for the training loop when the experts, and all trained parameters, are in other processes.

The loop runs in the first process, which has the text and the backbone, and no trained parameter. The others make
their updates when it clips and their checkpoints when it makes its own, and keep their best weights at its command:
early stopping depends on held-out losses, which only it knows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict

from engine.config import TrainingConfig
from engine.methods.mode.sharding.backbone import Shard
from engine.methods.parts.parts_model import ActiveParts
from engine.training.distributed import ProcessGroup


class ShardedProcessGroup(ProcessGroup):
    """For `train(active, …, team=ShardedProcessGroup(shards, active, config))`. One object serves one training."""

    def __init__(self, shards: Sequence[Shard], active: ActiveParts, config: TrainingConfig) -> None:
        self.shards = [shard for shard in shards if set(shard.keys) & set(active.active)]
        for shard in self.shards:
            keys = [key for key in active.active if key in shard.keys]
            shard.wire.send("learn", keys=keys, learning=active.learning, config=asdict(config))

    def step(self) -> None:
        """Updates the experts too; each of their processes joins the next `all_sum`."""
        for shard in self.shards:
            shard.wire.send("update")

    def all_sum(self, value: float) -> float:
        total = math.fsum([value, *(float(shard.wire.receive()["value"]) for shard in self.shards)])
        for shard in self.shards:
            shard.wire.send("sum", value=total)
        return total

    def save_others(self) -> None:
        """Saves the experts' states in their own processes; returns when all are saved."""
        for shard in self.shards:
            shard.wire.send("save")
        for shard in self.shards:
            shard.wire.receive()

    def on_resume(self, step: int) -> None:
        for shard in self.shards:
            shard.wire.send("resume", step=step)

    def on_best(self) -> None:
        for shard in self.shards:
            shard.wire.send("best")

    def finish(self) -> None:
        """Restores the experts' best weights, with early stopping."""
        for shard in self.shards:
            shard.wire.send("finish")
