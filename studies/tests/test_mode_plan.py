"""MoDE's plan trains every arm as the paper's table or figure asks for it, and scores it on the texts named there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest

from engine.config import TrainingConfig
from workbench.kinds.analysis import Evaluate
from workbench.kinds.training.make_seed import MakeSeed
from workbench.kinds.training.mode import ComposeMode, TrainMode
from workbench.kinds.training.train_joint import TrainJoint
from workbench.specs.requests import PlanStep
from workbench_studies.mode.arms import ReplicateMode, roles
from workbench_studies.papers.forecast import cost_of_token
from workbench_studies.papers.mode_plan import steps

DOMAINS = ["books", "cs", "law", "wiki"]
SPEC = ReplicateMode(name="rep", size="smoke", seeds=2, domains=DOMAINS, novel=["tweets"], **roles(DOMAINS))
MIXED, FIRST, SECOND = ["cs", "law"], ["cs"], ["law"]
ALL, OWN, OTHER = None, 5e-3, 1e-2  # of the sequences; rates of learning
Row = tuple[str, list[str], int | None, float, int]
TRAINED: dict[str, Row] = {  # what is made, of which domains, from how many sequences of each, at which rate, in steps
    "backbone": ("dense", ["books", "wiki"], ALL, OWN, 20),
    "mode1-2x1-first": ("1 expert of 2 x 1", FIRST, ALL, OWN, 4),
    "mode1-2x1-second": ("1 expert of 2 x 1", SECOND, ALL, OWN, 4),
    "full": ("dense-balanced", MIXED, ALL, OWN, 4),
    "lora4": ("LoRA of 4 in attention, scaled by 2", MIXED, ALL, OWN, 4),
    "mode1-2x1": ("1 expert of 2 x 1", MIXED, ALL, OWN, 4),
    "mode2-2x1": ("2 experts of 2 x 1", MIXED, ALL, OWN, 4),
    "frozen": ("gates of both", MIXED, ALL, OWN, 4),
    "composed": ("gates and experts of both", MIXED, ALL, OWN, 4),
    "mode1-2x1-copied": ("1 copied expert of 2 x 1", MIXED, ALL, OWN, 4),
    "full-x3": ("dense-balanced", MIXED, ALL, OWN, 12),
    "lora4-x3": ("LoRA of 4 in attention, scaled by 2", MIXED, ALL, OWN, 12),
    "mode2-2x1-x3": ("2 experts of 2 x 1", MIXED, ALL, OWN, 12),
    "full-rate0.01": ("dense-balanced", MIXED, ALL, OTHER, 4),
    "lora4-rate0.01": ("LoRA of 4 in attention, scaled by 2", MIXED, ALL, OTHER, 4),
    "mode1-2x1-rate0.01": ("1 expert of 2 x 1", MIXED, ALL, OTHER, 4),
    "lora4-second": ("LoRA of 4 in attention, scaled by 2", SECOND, ALL, OWN, 4),
    "lora8-second": ("LoRA of 8 in attention, scaled by 2", SECOND, ALL, OWN, 4),
    "lora4-all-second": ("LoRA of 4 in all, scaled by 2", SECOND, ALL, OWN, 4),
    "lora4-embeddings-second": ("LoRA of 4 in attention and embeddings, scaled by 2", SECOND, ALL, OWN, 4),
    "lora4-all-embeddings-second": ("LoRA of 4 in all and embeddings, scaled by 2", SECOND, ALL, OWN, 4),
    "mode1-1x1-second": ("1 expert of 1 x 1", SECOND, ALL, OWN, 4),
    "mode1-1x2-second": ("1 expert of 1 x 2", SECOND, ALL, OWN, 4),
    "mode1-2x2-second": ("1 expert of 2 x 2", SECOND, ALL, OWN, 4),
    "lora4-second-n2": ("LoRA of 4 in attention, scaled by 2", SECOND, 2, OWN, 4),
    "mode1-2x1-second-n2": ("1 expert of 2 x 1", SECOND, 2, OWN, 4),
    "full-n2": ("dense-balanced", MIXED, 2, OWN, 4),
    "lora4-n2": ("LoRA of 4 in attention, scaled by 2", MIXED, 2, OWN, 4),
    "mode2-2x1-n2": ("2 experts of 2 x 1", MIXED, 2, OWN, 4),
    "frozen-n2": ("gates of both", MIXED, 2, OWN, 4),
    "composed-n2": ("gates and experts of both", MIXED, 2, OWN, 4),
}
EVERYWHERE, JUDGED = [*DOMAINS, "tweets"], ["cs", "law", "books"]
SCORED: dict[str, tuple[list[str], list[str]]] = {  # on which domains, and which arms
    "test backbone": (EVERYWHERE, ["backbone"]),
    "scores of table 1": (EVERYWHERE, list(TRAINED)[1:10]),
    "scores of steps": (JUDGED, list(TRAINED)[10:13]),
    "scores of rates": (JUDGED, list(TRAINED)[13:16]),
    "scores of table 2": (JUDGED, list(TRAINED)[16:21]),
    "scores of table 3": (JUDGED, list(TRAINED)[21:24]),
    "scores of figure 3": (JUDGED, list(TRAINED)[24:26]),
    "scores of figure 5": (JUDGED, list(TRAINED)[26:]),
}
SHARED = {(1, "backbone"), (1, "test backbone")}  # of both seeds; those of the first one
ONE_EACH = SPEC.model_copy(update={"budget": replace(SPEC.budget, shared_backbone=False)})


def trainings(job_spec: ReplicateMode = SPEC) -> list[tuple[PlanStep, TrainJoint | TrainMode | ComposeMode]]:
    return [
        (step, step.spec) for step in steps(job_spec) if isinstance(step.spec, TrainJoint | TrainMode | ComposeMode)
    ]


def what(spec: TrainJoint | TrainMode | ComposeMode) -> str:
    """What a job trains, in the words of the table above."""
    match spec:
        case TrainJoint(method="lora-mixed", lora=lora):
            embeddings = " and embeddings" * lora.embeddings
            return f"LoRA of {lora.rank} in {lora.targets}{embeddings}, scaled by {lora.alpha / lora.rank:g}"
        case TrainJoint(method=method):
            return method
        case TrainMode(num_parts=number, shape=shape):
            how = {"random": "", "copy": "copied "}[shape.init]
            return f"{number} {how}expert{'s' * (number > 1)} of {shape.num_blocks} x {shape.expert_layers}"
        case ComposeMode(experts=experts, frozen=frozen):
            number = experts[0].split("-")[1][1:]
            assert experts == [f"rep-s{number}-mode1-2x1-first/cs", f"rep-s{number}-mode1-2x1-second/law"]
            return "gates of both" if frozen else "gates and experts of both"


def in_every_seed(rows: Mapping[str, Any], apart: Collection[tuple[int, str]] = ()) -> dict[str, Any]:
    return {f"s{seed} {key}": row for seed in range(2) for key, row in rows.items() if (seed, key) not in apart}


@pytest.mark.parametrize(("job_spec", "apart"), [(SPEC, SHARED), (ONE_EACH, ())])
def test_every_arm_is_trained_as_its_table_says_in_every_seed(
    job_spec: ReplicateMode, apart: Collection[tuple[int, str]]
) -> None:
    result: dict[str, Row] = {}
    for step, spec in trainings(job_spec):
        shown = spec.training
        result[step.key] = (what(spec), spec.domains, shown.max_sequences, shown.learning_rate, shown.num_steps)
    assert result == in_every_seed(TRAINED, apart)


def test_some_seeds_of_a_size_may_have_only_table_1_and_equal_steps() -> None:
    job_spec = SPEC.model_copy(update={"budget": replace(SPEC.budget, ablation_seeds=1)})
    of_seeds = [[key[3:] for step, _ in trainings(job_spec) if (key := step.key).startswith(f"s{n}")] for n in (0, 1)]
    assert of_seeds == [list(TRAINED), list(TRAINED)[1:13]]
    scored = [step.key for step in steps(job_spec) if isinstance(step.spec, Evaluate) and step.key.startswith("s1")]
    assert scored == ["s1 scores of table 1", "s1 scores of steps"]


def test_all_else_of_a_training_is_the_sizes() -> None:
    for step, spec in trainings():
        own = SPEC.budget.seeding if step.key.endswith("backbone") else SPEC.budget.training
        varied = ["seed", "num_steps", "max_sequences", "learning_rate", "sequences_per_domain"]
        if spec.training.max_sequences:
            assert spec.training.patience == SPEC.budget.patience
            assert spec.training.evaluate_every * 2 <= spec.training.num_steps
            varied += ["patience", "evaluate_every"]
        assert replace(own, **{name: getattr(spec.training, name) for name in varied}) == spec.training


@pytest.mark.parametrize("own_starts", [True, False])
def test_whatever_is_drawn_follows_the_seed_of_its_run(own_starts: bool) -> None:
    job_spec = SPEC.model_copy(update={"budget": replace(SPEC.budget, own_starts=own_starts)})
    starts: dict[str, list[int]] = {}
    for step in steps(job_spec):
        run, key = int(step.key[1]), step.key[3:]
        match step.spec:
            case MakeSeed(source="fresh"):
                assert step.spec.seed == run
            case TrainJoint(training=TrainingConfig(seed=seed)) | ComposeMode(training=TrainingConfig(seed=seed)):
                assert seed == run
            case TrainMode():
                assert step.spec.training.seed == run
                starts.setdefault(key, []).append(step.spec.shape.seed)
    assert starts
    for of_runs in starts.values():
        assert len(set(of_runs)) == 2 if own_starts else of_runs == [0, 1]


def test_every_arm_is_scored_once_on_the_texts_of_its_table() -> None:
    result: dict[str, tuple[list[str], list[str]]] = {}
    for step in steps(SPEC):
        if isinstance(step.spec, Evaluate):
            assert (step.spec.split, step.spec.max_tokens, step.spec.block_size) == ("test", 512, 32)
            first, *others = [step.spec.mixture, *step.spec.experts]
            names = [first, *(name.rpartition("/")[0] for name in others)]
            result[step.key] = (step.spec.domains, [name.removeprefix(f"rep-{step.key[:2]}-") for name in names])
    assert result == in_every_seed(SCORED, SHARED)


def test_a_training_beside_a_frozen_model_costs_what_it_computes() -> None:
    cost = {step.key[3:]: cost_of_token(step, SPEC) for step in steps(SPEC) if step.key.startswith("s0")}
    assert cost["backbone"] == cost["full"] == cost["full-x3"] == 1.0
    assert cost["lora4"] < cost["lora8-second"] < cost["lora4-all-second"] < 1.0
    assert cost["mode1-1x1-second"] < cost["mode1-2x1"] < cost["mode2-2x1"] == cost["composed"]
    assert cost["mode1-2x1"] < cost["frozen"] < cost["composed"]
    assert 1.0 < cost["mode1-2x1"] < 2.0  # as many layers again as the backbone's, which is gone through and back
