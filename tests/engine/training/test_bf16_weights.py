"""Trained weights in bfloat16: less memory, nearly the same training, the same bits after a resume."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # for test_low_bits

from test_low_bits import CONFIG, held_out, losses, seed, trained  # noqa: F401 (a fixture)

from engine.config import TrainingConfig
from engine.errors import EngineError, TrainingError
from engine.methods.registry import get_method
from engine.training import optimizer as low_bits
from engine.training.checkpoint import state_at
from engine.training.distributed import ProcessGroup
from engine.training.loop import train
from engine.training.memory import TrainingTensors, observed_by
from engine.training.optimizer import GradientGroup, clip_and_step, make_optimizer, stochastic_round

SHORT = {"precision": "bf16_weights"}


def test_a_trained_parameter_takes_12_bytes_in_place_of_16(seed, make_texts, tmp_path) -> None:  # noqa: F811
    each: dict[str, float] = {}
    for precision in ("fp32", "bf16", "bf16_weights"):
        held: list[TrainingTensors] = []
        with observed_by(held.append):
            trained("demix", seed, make_texts, tmp_path / precision, precision=precision, num_steps=2)
        parameters = list(held[0].parameters.values())
        state = state_at(tmp_path / precision, 2)
        of_parameters = sum(state[f"parameters/{name}"].nbytes for name in held[0].parameters)
        assert of_parameters == sum(one.numel() for one in parameters) * (2 if precision == "bf16_weights" else 4)
        # Gradients are of the precision of their parameters.
        each[precision] = (2 * of_parameters + held[0].optimizer_bytes()) / held[0].num_trained()
    assert each["fp32"] == each["bf16"] == pytest.approx(16, abs=0.05)
    assert each["bf16_weights"] == pytest.approx(12, abs=0.05)


def test_it_trains_nearly_as_well_as_in_float32(seed, make_texts, tmp_path) -> None:  # noqa: F811
    ends = []
    for precision in ("fp32", "bf16", "bf16_weights"):
        changes: dict[str, Any] = {"precision": precision, "learning_rate": 2e-3}
        _, events = trained("demix", seed, make_texts, tmp_path / precision, **changes)
        assert losses(events)[-1] < losses(events)[0]
        ends.append(held_out(events))
    assert ends[2] == pytest.approx(ends[0], rel=0.02)
    assert ends[2] != ends[1] != ends[0]


def test_it_is_resumed_to_the_bit(seed, make_texts, tmp_path) -> None:  # noqa: F811 (L17)
    changes: dict[str, Any] = {**SHORT, "patience": 3, "evaluate_every": 4}
    model, events = trained("demix", seed, make_texts, tmp_path / "full", **changes)
    _, first = trained("demix", seed, make_texts, tmp_path / "cut", stop_after=13, **changes)
    again, rest = trained("demix", seed, make_texts, tmp_path / "cut", **changes)
    assert losses(first) + losses(rest) == losses(events)
    theirs = model.state_dict()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in again.state_dict().items())


@pytest.mark.parametrize("name", ["demix", "dense", "domain-token", "lora", "mode", "moe"])
def test_every_method_trains_nearly_as_well_and_has_its_stored_precision_again(
    name: str,
    seed,  # noqa: F811
    make_texts,
    tmp_path,
) -> None:
    before = {key: one.dtype for key, one in get_method(name).build(seed, ["law"]).state_dict().items()}
    changes: dict[str, Any] = {"num_steps": 12, "learning_rate": 2e-3}
    _, expected = trained(name, seed, make_texts, tmp_path / "fp32", precision="fp32", **changes)
    model, events = trained(name, seed, make_texts, tmp_path / "short", **SHORT, **changes)
    assert losses(events) == pytest.approx(losses(expected), rel=0.02)
    assert losses(events) != losses(expected)
    assert {key: one.dtype for key, one in model.state_dict().items()} == before
    changed = model.expert_parameters("law").values()
    assert all(torch.equal(one, one.bfloat16().float()) for one in changed)


@pytest.mark.parametrize("piece_numbers", [low_bits._PIECE_NUMBERS, 1000])  # one piece, ten pieces
def test_updates_smaller_than_the_steps_of_bfloat16_are_made_on_average(piece_numbers: int, monkeypatch) -> None:
    monkeypatch.setattr(low_bits, "_PIECE_NUMBERS", piece_numbers)
    config = TrainingConfig(
        num_steps=100, learning_rate=1e-4, warmup=0, decay_power=0, weight_decay=0, precision="bf16_weights"
    )
    weight = torch.nn.Parameter(torch.ones(100, 100, dtype=torch.bfloat16))
    optimizer = make_optimizer({"weight": weight}, config)
    torch.manual_seed(0)
    for step in range(10):
        weight.grad = torch.ones_like(weight)
        clip_and_step(optimizer, [GradientGroup([weight])], step, replace(config, clip=0))
    assert float(optimizer.state[weight]["step"]) == 10
    assert float(weight.detach().float().mean()) == pytest.approx(1 - 10 * 1e-4, abs=1e-4)  # below 1 is 0.996


def test_rounding_at_random_is_right_on_average_and_exact_where_it_can_be() -> None:
    torch.manual_seed(0)
    exact = torch.tensor([1.001, -1.001, 3.3e-5, 0.0, 1.5, -2.0])
    drawn = torch.stack([stochastic_round(exact).float() for _ in range(4000)])
    assert drawn.mean(0).tolist() == pytest.approx(exact.tolist(), rel=3e-4)
    assert {len(column.unique()) for column in drawn.T[:3]} == {2}
    assert torch.equal(drawn[:, 3:], exact[3:].expand(4000, 3))


def test_what_it_does_not_go_with_is_refused(seed, make_texts, tmp_path: Path) -> None:  # noqa: F811
    model = get_method("dense").build(seed, ["law"])
    with pytest.raises(TrainingError, match="precision bf16_weights work in one process only"):
        list(train(model, make_texts(["law"]), replace(CONFIG, **SHORT), tmp_path, team=ProcessGroup()))
    with pytest.raises(EngineError, match="bf16_weights needs the optimizer adamw, but it is adamw_8bit"):
        replace(CONFIG, optimizer="adamw_8bit", **SHORT)
