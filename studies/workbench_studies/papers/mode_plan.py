"""MoDE's tables and figures as a plan of ordinary jobs.

The backbone is a dense model trained on all training domains but the two targets, then a seed model like any other.
Every arm begins from it: those of all seeds from one, as in the paper, or those of each seed from its own. The plan
depends only on the spec; table 1 comes first, in every seed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace

from engine.config import LoraConfig, TrainingConfig
from workbench.kinds.training.make_seed import MakeSeed
from workbench.kinds.training.mode import ComposeMode, TrainMode
from workbench.kinds.training.train_joint import TrainJoint
from workbench.specs.requests import PlanStep
from workbench_studies.core.spec import imports_and_seeds, plan_step, scoring
from workbench_studies.mode.arms import BACKBONE, Arm, Arms, ModeRun, ModeSize, ReplicateMode, targets_of

_EVALUATIONS = 10
_OF_ALL_SEEDS = ("table 1", "steps")  # what is in neither may be trained in the first seeds only


def steps(spec: ReplicateMode) -> Iterator[PlanStep]:
    """Every job but the report, in the order in which they should start."""
    runs_of_backbones = [run for run in spec.runs if run.of_backbone == run]
    yield from imports_and_seeds(spec, runs_of_backbones)
    for run in runs_of_backbones:
        yield from _backbone(spec, run)
    for group, arms in Arms(spec.budget).groups.items():
        for run in spec.runs[: None if group in _OF_ALL_SEEDS else spec.budget.ablation_seeds]:
            for arm in arms:
                yield plan_step(run, arm.key, _training(spec, run, arm), f"train {run.mixture(arm)}")
            if arms:  # table 1 is scored everywhere, other groups on the targets and on what is retained
                domains = spec.everywhere if group == "table 1" else spec.judged
                experts = [run.expert(arm, spec.targets) for arm in arms[1:]]
                step = scoring(spec, run, run.mixture(arms[0]), domains, group, experts)
                yield plan_step(run, f"scores of {group}", step.spec, f"score {group}")


def _backbone(spec: ReplicateMode, run: ModeRun) -> Iterator[PlanStep]:
    """A dense model of all domains that are not targets, its copy as a seed model, and its scores."""
    training = replace(spec.budget.seeding, seed=run.seed)
    dense = TrainJoint(
        name=run.backbone, seed_model=run.seed_model, domains=spec.known, method="dense", training=training
    )
    yield plan_step(run, BACKBONE.key, dense, f"train {run.backbone}")
    expert = run.expert(BACKBONE, spec.targets)
    copy = MakeSeed(name=run.backbone, source="expert", expert=expert)
    yield plan_step(run, "copied backbone", copy, f"make a seed model of {expert}")
    yield scoring(spec, run, run.backbone, spec.everywhere, BACKBONE.key)


def _training(spec: ReplicateMode, run: ModeRun, arm: Arm) -> TrainJoint | TrainMode | ComposeMode:
    """The training of an arm from the backbone, or from the experts of stage 1."""
    name, domains, training = run.mixture(arm), targets_of(arm, spec.targets), _settings(spec.budget, run, arm)
    if arm.is_composed:
        experts = [run.expert(single, spec.targets) for single in Arms(spec.budget).singles.values()]
        frozen = arm.method == "frozen"
        return ComposeMode(name=name, experts=experts, domains=domains, frozen=frozen, training=training)
    if arm.shape:
        return TrainMode(
            name=name,
            seed_model=run.backbone,
            domains=domains,
            num_parts=arm.num_parts,
            shape=replace(arm.shape, seed=_first_seed(spec, run, arm)),
            training=training,
        )
    return TrainJoint(
        name=name,
        seed_model=run.backbone,
        domains=domains,
        training=training,
        method="lora-mixed" if arm.lora else "dense-balanced",
        lora=arm.lora or LoraConfig(),
    )


def _first_seed(spec: ReplicateMode, run: ModeRun, arm: Arm) -> int:
    """The seed of an expert's random layers; further experts of the same training have the next ones."""
    if not spec.budget.own_starts:
        return run.seed
    return int.from_bytes(hashlib.sha256(f"{run.seed} {arm.key}".encode()).digest()[:6])


def _settings(size: ModeSize, run: ModeRun, arm: Arm) -> TrainingConfig:
    """An arm's training: batches of one size, whether they are of one target or of both.

    On fewer sequences, which it sees again and again, it stops by development text.
    """
    training = replace(
        size.training,
        seed=run.seed,
        num_steps=size.training.max_steps * arm.longer,
        max_sequences=arm.sequences,
        sequences_per_domain=size.training.sequences_per_domain * (1 if arm.on == "mixed" else 2),
        learning_rate=arm.rate or size.training.learning_rate,
    )
    if arm.sequences is None or size.patience is None:
        return training
    return replace(training, patience=size.patience, evaluate_every=max(1, training.max_steps // _EVALUATIONS))
