"""MoDE's tables and figures as a plan of ordinary jobs.

The backbone is a dense model trained on all training domains but the two targets, then a seed model like any other.
Every arm begins from it: those of all seeds from one, as in the paper, or those of each seed from its own. The plan
depends only on the spec; table 1 comes first, in every seed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from engine.config import LoraConfig, TrainingConfig
from workbench.kinds.training.make_seed import MakeSeed
from workbench.kinds.training.mode import ComposeMode, TrainMode
from workbench.kinds.training.train_joint import TrainJoint
from workbench.specs.requests import PlanStep
from workbench_studies.mode.arms import STAGE_1, Group, ModeSize, groups_of, seeds_of, single
from workbench_studies.mode.names import BACKBONE, Arm, ModeRun, trained_on
from workbench_studies.mode.spec import ReplicateMode
from workbench_studies.papers.step_maker import Maker, seeded

COPIED = "copied backbone"


def steps(spec: ReplicateMode) -> list[PlanStep]:
    """Every job but the report, in the order in which they should start."""
    maker = _Maker(spec)
    of_backbones = [run for run in spec.runs if run.of_backbone == run]
    all_steps = [*maker.texts(of_backbones), *(step for run in of_backbones for step in maker.backbone(run))]
    for group, arms in groups_of(spec.budget).items():
        for run in spec.runs[: seeds_of(spec.budget, group, spec.seeds)]:
            all_steps += [maker.train(run, arm) for arm in arms]
            all_steps += [maker.scores(run, group, arms)] if arms else []
    return all_steps


@dataclass(frozen=True)
class _Maker(Maker):
    spec: ReplicateMode

    def backbone(self, run: ModeRun) -> Iterator[PlanStep]:
        """A dense model of all that is no target, its scores, and its copy as a seed model."""
        trained = TrainJoint(
            name=run.backbone,
            seed_model=run.seed_model,
            domains=self.spec.known,
            method="dense",
            training=seeded(self.spec.budget.seeding, run),
        )
        yield self.step(run, BACKBONE.key, trained, f"train {run.backbone}", [self.key(run, "seed")])
        expert = run.expert(BACKBONE, self.spec.targets)
        copied = MakeSeed(name=run.backbone, source="expert", expert=expert)
        yield self.step(run, COPIED, copied, f"make a seed model of {expert}", [self.key(run, BACKBONE.key)])
        yield self.score(run, run.backbone, "test", self.spec.everywhere, [BACKBONE.key])

    def train(self, run: ModeRun, arm: Arm) -> PlanStep:
        """The training of an arm from the backbone; of a composition, once the experts of stage 1 are there."""
        needs = [self.key(run.of_backbone, COPIED)]
        if arm.method in ("frozen", "composed"):
            needs += [self.key(run, single(self.spec.budget, on).key) for on in STAGE_1]
        after = [*needs, *self.imports(trained_on(arm, self.spec.targets))]
        return self.step(run, arm.key, self._spec(run, arm), f"train {run.mixture(arm)}", after)

    def _spec(self, run: ModeRun, arm: Arm) -> TrainJoint | TrainMode | ComposeMode:
        domains, size = trained_on(arm, self.spec.targets), self.spec.budget
        training = stopping_early(training_of(size.training, arm, run), size, arm)
        if arm.method in ("frozen", "composed"):
            experts = [run.expert(single(self.spec.budget, on), self.spec.targets) for on in STAGE_1]
            return ComposeMode(
                name=run.mixture(arm),
                experts=experts,
                domains=domains,
                frozen=arm.method == "frozen",
                training=training,
            )
        if arm.shape:
            return TrainMode(
                name=run.mixture(arm),
                seed_model=run.backbone,
                domains=domains,
                num_parts=arm.num_parts,
                shape=replace(arm.shape, seed=self._start(run, arm)),
                training=training,
            )
        return TrainJoint(
            name=run.mixture(arm),
            seed_model=run.backbone,
            domains=domains,
            training=training,
            method="lora-mixed" if arm.lora else "dense-balanced",
            lora=arm.lora or LoraConfig(),
        )

    def _start(self, run: ModeRun, arm: Arm) -> int:
        """The seed of an expert's random layers; those beside it in one training have the next ones."""
        if not self.spec.budget.own_starts:
            return run.seed
        return int.from_bytes(hashlib.sha256(f"{run.seed} {arm.key}".encode()).digest()[:6])

    def scores(self, run: ModeRun, group: Group, arms: list[Arm]) -> PlanStep:
        """The scores of a group of arms: of table 1 everywhere, of the others on the targets and what is retained."""
        first, *others = arms
        domains = self.spec.everywhere if group == "table 1" else self.spec.judged
        experts = [run.expert(arm, self.spec.targets) for arm in others]
        scored = self.score(run, run.mixture(first), "test", domains, [arm.key for arm in arms], experts)
        return replace(
            scored, key=self.key(run, f"scores of {group}"), title=f"{self.spec.name}: score {group}, seed {run.seed}"
        )


def training_of(training: TrainingConfig, arm: Arm, run: ModeRun) -> TrainingConfig:
    """An arm's training: batches of one size, whether they are of one target or of both."""
    return replace(
        seeded(training, run),
        num_steps=training.num_steps * arm.longer,
        max_sequences=arm.sequences,
        sequences_per_domain=training.sequences_per_domain * (1 if arm.on == "mixed" else 2),
        learning_rate=arm.rate or training.learning_rate,
    )


def stopping_early(training: TrainingConfig, size: ModeSize, arm: Arm) -> TrainingConfig:
    """The training of an arm on fewer sequences, which it sees again and again: it stops by development text."""
    if arm.sequences is None or size.patience is None:
        return training
    return replace(training, patience=size.patience, evaluate_every=max(1, training.num_steps // _EVALUATIONS))


_EVALUATIONS = 10
