"""Steps that the plans of all replications share: imports, seed models, scores; and how much each trains."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.config import AdaptingConfig, ModelConfig, TrainingConfig
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
from workbench_studies.core.sizes import Run
from workbench_studies.core.spec import Replicate
from workbench_studies.mode.spec import ReplicateMode


@dataclass(frozen=True)
class Maker:
    """Makes the steps of a plan from the spec."""

    spec: Replicate

    def texts(self, runs: Sequence[Run]) -> Iterator[PlanStep]:
        """Imports, and a seed model for each seed."""
        for text in self.spec.imports:
            yield PlanStep(f"import {text.name}", text, f"{self.spec.name}: import {text.name}")
        for run in runs:
            yield self.fresh_seed(run, self.spec.budget.shape)

    def fresh_seed(self, run: Run, shape: ModelConfig) -> PlanStep:
        """A fresh seed model of a shape, with a tokenizer of the training domains."""
        seed = MakeSeed(
            name=run.seed_model,
            domains=self.spec.domains,
            shape=shape,
            vocab_size=self.spec.budget.vocab_size,
            seed=run.seed,
        )
        return self.step(run, "seed", seed, "make the seed model", self.imports(self.spec.domains))

    def score(
        self,
        run: Run,
        mixture: str,
        split: HeldOutSplit,
        domains: Sequence[str],
        needs: Sequence[str],
        experts: Sequence[str] = (),
    ) -> PlanStep:
        """The scores of a mixture, and of experts beside it; `needs` are keys within the run, the last one names it."""
        size = self.spec.budget
        fields: dict[str, Any] = {
            "mixture": mixture,
            "experts": list(experts),
            "domains": list(domains),
            "split": split,
        }
        max_tokens = size.test_tokens if split == "test" else size.dev_tokens
        spec = Evaluate.model_validate(fields | {"block_size": size.block_size, "max_tokens": max_tokens})
        after = [*(self.key(run, one) for one in needs), *self.imports(domains)]
        more = " and the added experts" if experts else ""
        return self.step(run, f"{split} {needs[-1]}", spec, f"score {mixture}{more} on {split} text", after)

    def step(self, run: Run, key: str, spec: Spec, doing: str, after: Iterable[str]) -> PlanStep:
        return PlanStep(self.key(run, key), spec, f"{self.spec.name}: {doing}, seed {run.seed}", tuple(after))

    def key(self, run: Run, key: str) -> str:
        return f"s{run.seed} {key}"

    def imports(self, domains: Sequence[str]) -> tuple[str, ...]:
        """The imports that these domains wait for; none for existing domains."""
        return tuple(f"import {text.name}" for text in self.spec.imports if text.name in domains)


def seeded(training: TrainingConfig, run: Run) -> TrainingConfig:
    """A training with the seed of a run."""
    return replace(training, seed=run.seed)


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
