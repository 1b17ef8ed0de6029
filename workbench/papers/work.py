"""How much a step of a plan trains."""

from __future__ import annotations

from engine.config import AdaptingConfig
from workbench.kinds.training.compose_mode import ComposeMode
from workbench.kinds.training.train_expert import TrainExpert
from workbench.kinds.training.train_joint import TrainJoint
from workbench.kinds.training.train_mode import TrainMode
from workbench.plans import Step


def tokens_per_step(step: Step) -> int:
    """Tokens of one update of a training; 0 for other jobs."""
    match step.spec:
        case TrainJoint() | TrainMode() | ComposeMode():
            return tokens_of_update(step.spec.training, len(step.spec.domains))
        case TrainExpert():
            return tokens_of_update(step.spec.training, 1)
    return 0


def tokens_of_update(training: AdaptingConfig, num_domains: int) -> int:
    return training.block_size * training.sequences_per_domain * training.accumulate * num_domains
