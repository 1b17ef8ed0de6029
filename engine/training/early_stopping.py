"""The history of a training's evaluations, stored in its checkpoints so that early stopping resumes exactly."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.training.distributed import ProcessGroup


@dataclass
class EvaluationHistory:
    """The evaluations so far, in steps and nats per token."""

    evaluated_step: int = -1  # of the last one; -1 before the first
    last_losses: dict[str, float] = field(default_factory=dict)  # of each domain trained on; empty before the first
    first_losses: dict[str, float] = field(default_factory=dict)  # the same before the first update
    best_step: int = 0
    best_losses: dict[str, float] = field(default_factory=dict)  # the same, with patience only
    num_worse: int = 0  # evaluations in a row since the best one

    def add(self, step: int, losses: Mapping[str, float], team: ProcessGroup) -> bool:
        """Adds an evaluation; True if it is the best so far, as decided by the first process."""
        is_better = bool(
            team.broadcast(int(_mean(losses) < (_mean(self.best_losses) if self.best_losses else math.inf)))
        )
        if is_better:
            self.best_step, self.best_losses, self.num_worse = step, dict(losses), 0
        else:
            self.num_worse += 1
        return is_better


def _mean(losses: Mapping[str, float]) -> float:
    return math.fsum(losses.values()) / len(losses)
