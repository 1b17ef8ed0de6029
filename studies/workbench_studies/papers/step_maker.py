"""Steps that the plans of all replications share: imports, a seed model for each seed, scores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.config import ModelConfig, TrainingConfig
from engine.text.split_names import HeldOutSplit
from workbench.kinds.analysis import Evaluate
from workbench.kinds.training.make_seed import MakeSeed
from workbench.specs.base import Spec
from workbench.specs.requests import PlanStep
from workbench_studies.core.sizes import Run
from workbench_studies.kinds.replicate import Replicate


@dataclass(frozen=True)
class Maker:
    """Makes the steps of a plan from the spec."""

    spec: Replicate

    @property
    def everywhere(self) -> list[str]:
        return [*self.spec.domains, *self.spec.novel]

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
