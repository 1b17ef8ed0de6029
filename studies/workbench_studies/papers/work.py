"""How much a step of a plan trains, and what a token of it costs."""

from __future__ import annotations

from engine.config import AdaptingConfig
from engine.methods.lora.descriptor import adapter_size
from engine.methods.lora.descriptor import training_flops as lora_flops
from engine.methods.mode.flops import training_flops as mode_flops
from engine.methods.registry import get_method
from engine.models.flops import Shape, training_flops
from workbench.kinds.training.compose_mode import ComposeMode
from workbench.kinds.training.train_expert import TrainExpert
from workbench.kinds.training.train_joint import TrainJoint
from workbench.kinds.training.train_mode import TrainMode
from workbench.specs.requests import PlanStep
from workbench_studies.kinds.replicate import Replicate
from workbench_studies.kinds.replicate_mode import ReplicateMode


def tokens_per_step(step: PlanStep) -> int:
    """Tokens of one update of a training; 0 for other jobs."""
    match step.spec:
        case TrainJoint() | TrainMode() | ComposeMode():
            return tokens_of_update(step.spec.training, len(step.spec.domains))
        case TrainExpert():
            return tokens_of_update(step.spec.training, 1)
    return 0


def tokens_of_update(training: AdaptingConfig, num_domains: int) -> int:
    return training.block_size * training.sequences_per_domain * training.accumulate * num_domains


def cost_of_token(step: PlanStep, spec: Replicate) -> float:
    """Operations to train on a token, over those of a training in which all of the size's model learns.

    What is beside a frozen model is counted: layers of MoDE's experts, and what a loss goes back through.
    """
    shape, context = Shape.fresh(spec.budget.shape, spec.budget.vocab_size), spec.budget.block_size
    full = training_flops(shape, context)
    match step.spec:
        case TrainMode(shape=config, num_parts=number):
            return mode_flops(shape, context, [config] * number) / full
        case ComposeMode(experts=experts, frozen=frozen) if isinstance(spec, ReplicateMode):
            parts = [spec.budget.mode] * len(experts)
            return mode_flops(shape, context, parts, "gates" if frozen else "experts") / full
        case TrainJoint(method=method, lora=config) if get_method(method).base_is_frozen:
            return lora_flops(shape, context, adapter_size(shape, config)) / full
    return 1.0
