"""Steps that the plans of all replications share: imports, seed models, scores; and how much each trains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.config import AdaptingConfig, ModelConfig
from engine.methods.lora.descriptor import adapter_size
from engine.methods.lora.descriptor import training_flops as lora_flops
from engine.methods.mode.flops import training_flops as mode_flops
from engine.methods.registry import get_method
from engine.models.flops import Shape, training_flops
from engine.text.split_names import HeldOutSplit
from workbench.kinds.analysis import Evaluate
from workbench.kinds.training.make_seed import MakeSeed
from workbench.kinds.training.mode import ComposeMode, TrainMode
from workbench.kinds.training.train_expert import TrainExpert
from workbench.kinds.training.train_joint import TrainJoint
from workbench.specs.base import Spec
from workbench.specs.requests import PlanStep
from workbench_studies.core.spec import Replicate, Run
from workbench_studies.mode.arms import ReplicateMode


def plan_step(run: Run, key: str, job: Spec, action: str) -> PlanStep:
    """A step of one seed; `key` is its name within the seed."""
    return PlanStep(run.step_key(key), job, f"{run.name}: {action}, seed {run.seed}")


def imports_and_seeds(spec: Replicate, runs: Sequence[Run]) -> Iterator[PlanStep]:
    """The imports of a replication, and a seed model for each seed."""
    for text in spec.imports:
        yield PlanStep(f"import {text.name}", text, f"{spec.name}: import {text.name}")
    for run in runs:
        yield fresh_seed(spec, run, spec.budget.shape)


def fresh_seed(spec: Replicate, run: Run, shape: ModelConfig) -> PlanStep:
    """A fresh seed model of a shape, with a tokenizer of the training domains."""
    vocab_size = spec.budget.vocab_size
    seed = MakeSeed(name=run.seed_model, domains=spec.domains, shape=shape, vocab_size=vocab_size, seed=run.seed)
    return plan_step(run, "seed", seed, "make the seed model")


def scoring(
    spec: Replicate,
    run: Run,
    mixture: str,
    domains: Sequence[str],
    key: str,
    experts: Sequence[str] = (),
    *,
    split: HeldOutSplit = "test",
) -> PlanStep:
    """The scores of a mixture, or of its first expert and of `experts`; `key` is that of its training in the seed."""
    size = spec.budget
    job = Evaluate(
        mixture=mixture,
        experts=list(experts),
        domains=list(domains),
        split=split,
        block_size=size.block_size,
        max_tokens=size.test_tokens if split == "test" else size.dev_tokens,
    )
    more = " and the added experts" if experts else ""
    return plan_step(run, f"{split} {key}", job, f"score {mixture}{more} on {split} text")


# how much a step trains ---------------------------------------------------------------------------


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

    What is added to a frozen model is counted: layers of MoDE's experts, and what a loss goes back through.
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
