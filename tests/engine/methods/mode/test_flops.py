"""Counted operations are those that PyTorch counts while a MoDE model computes: nothing frozen is computed backward."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from engine.config import TrainingConfig
from engine.events import Step
from engine.methods.mode.config import ModeConfig
from engine.methods.mode.flops import forward_flops
from engine.methods.mode.model import ModeModel
from engine.methods.parts.parts_model import ActiveParts
from engine.models.expert_model import trainable
from engine.models.flops import Shape, training_flops
from engine.training.loop import train
from tests.engine.methods.mode.backbones import backbone

TOKENS, ROWS = 48, 2
TOLERANCE = 0.004  # rotary angles are products, too, and products with a gate's row are not counted by PyTorch


@pytest.fixture(autouse=True)
def products_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch does not count the products of oneDNN."""
    monkeypatch.setattr("engine.models.matrix_products.is_onednn_faster", lambda: False)


def active_experts(family: str, config: ModeConfig, num_experts: int, *, frozen: bool) -> ActiveParts:
    model = ModeModel(backbone(family), config.num_blocks)
    keys = [f"e{number}" for number in range(num_experts)]
    for key in keys:
        model.add_expert(key, config)
    return ActiveParts(model, keys, "all", "gates" if frozen else "experts")


def counted(active: ActiveParts, *, backward: bool) -> float:
    """Operations per token, as PyTorch's own counter sees them pass."""
    trainable(active, active.keys)
    active.lm.set_attn_implementation("eager")  # the counter does not know the fused attention of a CPU
    with FlopCounterMode(display=False) as counter:
        logits, _ = active.model(torch.ones(ROWS, TOKENS, dtype=torch.long), active.active)
        if backward:
            logits.sum().backward()
    return counter.get_total_flops() / (ROWS * TOKENS)


CASES: Sequence[tuple[ModeConfig, int, bool]] = [
    (ModeConfig(1, 2, start="even"), 1, False),
    (ModeConfig(2, 1, start="even"), 1, False),
    (ModeConfig(3, 2, start="even"), 1, False),
    (ModeConfig(3, 1, start="even"), 3, False),
    (ModeConfig(3, 1, start="even"), 2, True),
]


@pytest.mark.parametrize("family", ["llama", "gpt2", "opt"])
@pytest.mark.parametrize(("config", "num_experts", "frozen"), CASES)
def test_passes_cost_what_is_counted(family: str, config: ModeConfig, num_experts: int, frozen: bool) -> None:
    active = active_experts(family, config, num_experts, frozen=frozen)
    shape = Shape.of(active.lm.config.to_dict())
    forward = forward_flops(shape, TOKENS, [config] * num_experts)
    assert counted(active, backward=False) == pytest.approx(forward, rel=TOLERANCE)
    assert counted(active, backward=True) == pytest.approx(
        active.training_flops(TOKENS, experts_only=True), rel=TOLERANCE
    )


def test_an_update_of_stage_one_costs_less_than_one_of_the_full_backbone() -> None:
    active = active_experts("llama", ModeConfig(2, 1), 1, frozen=False)
    full = training_flops(Shape.of(active.lm.config.to_dict()), TOKENS)
    assert active.training_flops(TOKENS, experts_only=True) < 0.9 * full


def test_a_training_reports_its_operations(make_texts, tmp_path) -> None:
    active = active_experts("llama", ModeConfig(2, 1), 1, frozen=False)
    active.keys[0] = "law"
    config = TrainingConfig(num_steps=1, block_size=16, sequences_per_domain=2, learning_rate=1e-3)
    (step,) = [event for event in train(active, make_texts(["law"]), config, tmp_path) if isinstance(event, Step)]
    assert step.num_flops == 32 * active.training_flops(16, experts_only=True)
