"""Training by the house's loop where the experts, and all that learns, lie in other processes.

The loop runs in the first process, which has the text and the backbone, and no parameter that learns. As a team the
others make their updates when it clips, and their checkpoints when it makes its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from torch import Tensor

from engine.config import TrainingConfig
from engine.errors import TrainingError
from engine.mode.active import ActiveExperts
from engine.mode.sharding.backbone import Shard
from engine.training.distributed import Team


class ShardedTeam(Team):
    """For `train(active, …, team=ShardedTeam(shards, active, config))`. One object serves one training."""

    def __init__(self, shards: Sequence[Shard], active: ActiveExperts, config: TrainingConfig) -> None:
        """Raises TrainingError with patience: the best weights would have to be kept elsewhere."""
        if config.patience is not None:
            raise TrainingError(
                "A training of experts in other processes must make all its steps, but has patience.",
                "Leave patience empty.",
            )
        self.shards = [shard for shard in shards if set(shard.keys) & set(active.active)]
        for shard in self.shards:
            keys = [key for key in active.active if key in shard.keys]
            shard.wire.tell("learn", keys=keys, learning=active.learning, config=asdict(config))

    def agree(self, value: int) -> int:
        """Called once, with the step to go on from."""
        for shard in self.shards:
            shard.wire.tell("resume", step=value)
        return value

    def total(self, value: float) -> float:
        """Called at each update, with this process's part of the squared norm."""
        for shard in self.shards:
            shard.wire.tell("update")
        total = math.fsum([value, *(float(shard.wire.hear()["value"]) for shard in self.shards)])
        for shard in self.shards:
            shard.wire.tell("sum", value=total)
        return total

    def collect(self, state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The experts' states stay where they are; this returns when they are kept."""
        for shard in self.shards:
            shard.wire.tell("save")
        for shard in self.shards:
            shard.wire.hear()
        return state
