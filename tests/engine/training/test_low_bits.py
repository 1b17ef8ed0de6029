"""8-bit AdamW and frozen weights in 4 bits: less memory, nearly the same training, the same bits after a resume."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from engine.config import ModelConfig, TrainingConfig
from engine.errors import EngineError, TrainingError
from engine.events import Evaluated, Step
from engine.methods.registry import get_method
from engine.models.families import fresh_model
from engine.models.rows import Rows
from engine.training import loop
from engine.training.distributed import ProcessGroup
from engine.training.loop import train
from engine.training.memory import TrainingTensors, observed_by
from engine.training.optimizer import frozen_in_4bit

pytestmark = pytest.mark.filterwarnings("ignore")  # of bitsandbytes, on CPUs
CONFIG = TrainingConfig(
    num_steps=30, block_size=16, learning_rate=1e-2, checkpoint_every=10, evaluate_every=30, clip=1.0, seed=1
)
FROZEN = ["lora", "mode"]


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seed")
    shape = ModelConfig(num_layers=3, width=128, num_heads=2, ffn_width=256, max_positions=64)
    fresh_model(shape, 300, seed=7).save_pretrained(folder)
    return folder


def trained(name: str, seed: Path, texts: Any, folder: Path, stop_after: int | None = None, **changes: Any) -> Any:
    """The model of one expert after its training, and the events."""
    method = get_method(name)
    model, learns = method.build(seed, ["law"]), ["law"] if method.base_is_frozen else None
    events, seen = train(model, texts(["law"]), replace(CONFIG, **changes), folder, only_experts=learns), []
    for event in events:
        seen.append(event)
        if isinstance(event, Step) and event.step == stop_after:
            break
    events.close()  # type: ignore[attr-defined]
    return model, seen


def losses(events: list[Any]) -> list[float]:
    return [event.loss for event in events if isinstance(event, Step)]


def held_out(events: list[Any]) -> float:
    return [event for event in events if isinstance(event, Evaluated)][-1].loss_by_domain["domain law"]


def test_moments_in_8_bits_take_a_quarter_and_train_nearly_as_well(seed, make_texts, tmp_path) -> None:
    held: list[TrainingTensors] = []
    sizes, ends = [], []
    for optimizer in ("adamw", "adamw_8bit"):
        with observed_by(held.append):
            _, events = trained(
                "demix", seed, make_texts, tmp_path / optimizer, optimizer=optimizer, learning_rate=2e-3
            )
        sizes.append(held[-1].optimizer_bytes())
        ends.append(held_out(events))
        assert losses(events)[-1] < losses(events)[0]
    assert ends[1] == pytest.approx(ends[0], rel=0.02)
    assert ends[1] != ends[0]
    assert 0.24 < sizes[1] / sizes[0] < 0.3


def test_a_training_in_8_bits_is_resumed_to_the_bit(seed, make_texts, tmp_path) -> None:
    model, events = trained("demix", seed, make_texts, tmp_path / "full", optimizer="adamw_8bit")
    _, first = trained("demix", seed, make_texts, tmp_path / "cut", stop_after=13, optimizer="adamw_8bit")
    again, rest = trained("demix", seed, make_texts, tmp_path / "cut", optimizer="adamw_8bit")
    assert losses(first) + losses(rest) == losses(events)
    theirs = model.state_dict()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in again.state_dict().items())


def changed(model: Any, untouched: dict[str, torch.Tensor]) -> set[str]:
    """The names of tensors that are not as they were."""
    return {key for key, one in model.state_dict().items() if not torch.equal(one, untouched.get(key, one))}


@pytest.mark.parametrize("name", FROZEN)
def test_a_frozen_base_in_4_bits_trains_nearly_as_well_and_is_exact_again(
    name: str, seed, make_texts, tmp_path
) -> None:
    exact, expected = trained(name, seed, make_texts, tmp_path / "exact")
    model, events = trained(name, seed, make_texts, tmp_path / "short", load_in_4bit=True)
    assert losses(events)[0] == pytest.approx(losses(expected)[0], rel=0.05)
    assert losses(events)[0] != losses(expected)[0]
    assert held_out(events) == pytest.approx(held_out(expected), rel=0.03)
    untouched = get_method(name).build(seed, ["law"]).state_dict()
    assert changed(model, untouched) == changed(exact, untouched) != set()


@pytest.mark.parametrize("name", FROZEN)
def test_maps_in_4_bits_take_an_eighth_and_leave_heads_and_what_learns(name: str, seed) -> None:
    method = get_method(name)
    model = method.build(seed, ["law"])
    loop.trainable(model, ["law"])
    learnt = [parameter for parameter in model.parameters() if parameter.requires_grad]
    before = {key: one for key, one in model.named_modules() if isinstance(one, nn.Linear)}
    with frozen_in_4bit(model, "fp32", torch.device("cpu")):  # type: ignore[arg-type]
        short = {key: one for key, one in model.named_modules() if type(one).__name__ == "Linear4bit"}
        assert short
        assert not any("head" in key for key in short)
        for key, one in short.items():
            assert one.weight.untyped_storage().nbytes() * 8 == before[key].weight.numel() * 4
        assert learnt == [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert before == {key: one for key, one in model.named_modules() if isinstance(one, nn.Linear)}


def test_a_family_of_other_maps_and_a_model_that_is_trained_all_over_are_refused(seed, make_texts, tmp_path) -> None:
    with pytest.raises(TrainingError, match="nothing can be held in 4 bits"):
        trained("demix", seed, make_texts, tmp_path, load_in_4bit=True)


@pytest.mark.parametrize("changes", [{"load_in_4bit": True}, {"optimizer": "adamw_8bit"}], ids=str)
def test_a_library_that_is_missing_is_named(changes: dict[str, Any], seed, make_texts, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(EngineError, match="need bitsandbytes") as error:
        trained("lora", seed, make_texts, tmp_path, **changes)
    assert "expert-workbench[low-bits]" in error.value.next_step


def test_several_processes_are_refused(seed, make_texts, tmp_path) -> None:
    model = get_method("dense").build(seed, ["law"])
    config = replace(CONFIG, optimizer="adamw_8bit", compile=True)
    with pytest.raises(TrainingError, match="compile and optimizer adamw_8bit work in one process only"):
        list(train(model, make_texts(["law"]), config, tmp_path, team=ProcessGroup()))


def test_logits_after_the_training_are_those_of_the_exact_base(seed, make_texts, tmp_path) -> None:
    model, _ = trained("lora", seed, make_texts, tmp_path, load_in_4bit=True)
    ids = torch.arange(3, 19)[None]
    state = model.expert_parameters("law")
    fresh = get_method("lora").build(seed, ["law"]).eval()
    with torch.no_grad():
        for key, parameter in fresh.expert_parameters("law").items():
            parameter.copy_(state[key])
        assert torch.equal(model.eval()(ids, Rows.all_to("law", 1)), fresh(ids, Rows.all_to("law", 1)))
