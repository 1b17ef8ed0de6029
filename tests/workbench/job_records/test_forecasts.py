"""What a training of MoDE is said to take is what the model adds, and the time follows from what was measured."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from engine.config import ModelConfig, TrainingConfig
from engine.methods.mode.config import ModeConfig
from engine.methods.mode.flops import training_flops
from engine.methods.mode.model import ModeModel
from engine.models.families import fresh_model, num_parameters
from engine.models.flops import Shape
from workbench.job_records import jobs, leases
from workbench.job_records.forecasts import Forecast, forecast
from workbench.kinds.training.compose_mode import ComposeMode
from workbench.kinds.training.train_mode import TrainMode
from workbench.registry import experts
from workbench.registry.seeds import seed_row

if TYPE_CHECKING:
    from typing import Any

    from tests.workbench.conftest import World

SHAPE = ModeConfig(num_blocks=2, expert_layers=1)
TRAINING = TrainingConfig(num_steps=10, block_size=16, sequences_per_domain=3)
SPEC = TrainMode(name="law", seed_model="seed", domains=["law", "code"], num_parts=1, shape=SHAPE, training=TRAINING)


@pytest.fixture
def model() -> Any:
    return fresh_model(ModelConfig(num_layers=4, width=64, num_heads=2, ffn_width=128), 300, 0)


@pytest.fixture
def seeded(world: World, model: Any) -> World:
    """The seed “seed”, with the shape of a true model."""
    world.seed()
    row = seed_row(world.session, "seed")
    row.config, row.num_parameters = model.config.to_dict(), num_parameters(model)
    return world


def shown(world: World, spec: TrainMode | ComposeMode) -> Forecast:
    outcome = forecast(world.session, spec)
    assert outcome is not None
    return outcome


def test_a_seed_in_bfloat16_takes_half_of_what_is_frozen_in_bf16_and_half_of_the_disk(seeded: World) -> None:
    full = shown(seeded, SPEC)
    row = seed_row(seeded.session, "seed")
    row.config = row.config | {"dtype": "bfloat16"}
    half = shown(seeded, SPEC.model_copy(update={"training": replace(TRAINING, precision="bf16")}))
    assert full.memory_bytes - half.memory_bytes == 2 * full.num_frozen
    assert (half.disk_bytes, half.checkpoint_bytes) == (full.disk_bytes // 2, full.checkpoint_bytes)
    assert shown(seeded, SPEC).memory_bytes == full.memory_bytes  # auto: at most


def test_what_learns_is_what_the_model_adds_but_for_norms(seeded: World, model: Any) -> None:
    outcome = shown(seeded, SPEC)
    mode = ModeModel(model, SHAPE.num_blocks)
    mode.add_expert("law", SHAPE)
    assert outcome.num_trained == pytest.approx(mode.num_added("law"), rel=0.01)
    assert outcome.memory_bytes == 4 * (outcome.num_frozen + 4 * outcome.num_trained)
    assert outcome.num_flops == 10 * 2 * 3 * 16 * training_flops(Shape.of(model.config.to_dict()), 16, [SHAPE])
    assert (outcome.seconds, outcome.measured_by) == (None, None)


def test_time_is_by_the_newest_training_of_this_machine(seeded: World) -> None:
    for speed in (1e6, 2e6):
        job_id = jobs.create_job(seeded.session, SPEC, title=f"at {speed:g}")
        fence = leases.claim(seeded.session, job_id, "test", 60.0, 3)
        assert fence is not None
        leases.finish(seeded.session, job_id, fence, "done", result={"throughput": {"flops_per_second": speed}})
    outcome = shown(seeded, SPEC)
    assert outcome.measured_by == "at 2e+06"
    assert outcome.seconds == pytest.approx(outcome.num_flops / 2e6)
    assert outcome.seconds_between == pytest.approx((outcome.num_flops / 2e6, outcome.num_flops / 1e6))


def test_a_training_of_the_same_kind_and_backbone_goes_before_a_newer_one(seeded: World) -> None:
    other = SPEC.model_copy(update={"seed_model": "another"})
    for spec, speed in ((other, 4e6), (SPEC, 1e6), (other, 2e6)):
        if spec is SPEC:
            assert shown(seeded, SPEC).seconds_between is None
            assert not shown(seeded, SPEC).is_alike
        job_id = jobs.create_job(seeded.session, spec, title=f"at {speed:g}")
        fence = leases.claim(seeded.session, job_id, "test", 60.0, 3)
        assert fence is not None
        leases.finish(seeded.session, job_id, fence, "done", result={"throughput": {"flops_per_second": speed}})
    outcome = shown(seeded, SPEC)
    assert (outcome.measured_by, outcome.is_alike) == ("at 1e+06", True)
    assert outcome.seconds_between == pytest.approx((outcome.num_flops / 1e6,) * 2)


def test_frozen_experts_take_memory_and_learn_gates_alone(seeded: World) -> None:
    seeded.corpus("text", "law", "code")
    row = seed_row(seeded.session, "seed")
    for name in ("law", "code"):
        seeded.expert(name, name, base=row.artifact, seed_id=row.id)
        shape = {"num_blocks": 2, "expert_layers": 1}
        part = {"name": name, "domain": name, "domains": [name], "of": None, "shape": shape}
        expert = experts.expert_row(seeded.session, name)
        expert.method, expert.config = "mode", {"shape": shape, "parts": [part]}
    job_spec = {"name": "both", "experts": ["law", "code"]}
    frozen = shown(seeded, ComposeMode(**job_spec, domains=["law", "code"], frozen=True, training=TRAINING))
    full = shown(seeded, ComposeMode(**job_spec, domains=["law", "code"], training=TRAINING))
    still = shown(seeded, ComposeMode(**job_spec))
    one = shown(seeded, SPEC)
    assert frozen.num_trained == 2 * 2 * (64 + 1)
    assert full.num_trained == frozen.num_beside == still.num_beside == 2 * one.num_trained
    assert 0 < frozen.num_flops < full.num_flops
    assert (still.num_trained, still.num_flops, still.checkpoint_bytes) == (0, 0, 0)


def test_nothing_is_foretold_of_what_nobody_knows(seeded: World) -> None:
    assert forecast(seeded.session, SPEC.model_copy(update={"seed_model": "gone"})) is None
    assert forecast(seeded.session, ComposeMode(name="both", experts=["a", "b"])) is None
