"""The least that a training takes: never more than it then holds, counted before anything is loaded, and a refusal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine import device as device_module
from engine.config import ModelConfig, TrainingConfig
from engine.device import megabytes, shapes_only
from engine.errors import DoesNotFitError
from engine.events import Event, Requirements, Step
from engine.files import folder_size
from engine.methods.joint_training import Recipe
from engine.methods.registry import methods
from engine.models.expert_model import trainable
from engine.models.families import fresh_model
from engine.text.blocks import Tokens
from engine.training import memory as module
from engine.training.checkpoint import checkpoint_folder
from engine.training.data import DomainText
from engine.training.loop import train
from engine.training.memory import TrainingTensors, least_needs, observed_by, require_memory_to_build

CPU, GPU = torch.device("cpu"), torch.device("cuda")
SHAPE = ModelConfig("llama", num_layers=4, width=32, num_heads=2, ffn_width=64, max_positions=64)
CONFIG = TrainingConfig(num_steps=2, block_size=16, sequences_per_domain=2, learning_rate=1e-2)
every_method = pytest.mark.parametrize("name", [name for name, method in methods().items() if method.is_trainable])


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seed")
    fresh_model(SHAPE, 300, seed=7).save_pretrained(folder)
    return folder


@pytest.fixture
def text(make_tokens: Callable[..., Tokens]) -> Callable[[str], DomainText]:
    return lambda key: DomainText("law", key, make_tokens(0, 400), make_tokens(50, 100))


def built(seed: Path, name: str) -> tuple[Any, list[str], Recipe]:
    recipe = Recipe(name)
    method = recipe.descriptor
    keys = [method.only_expert or "law"]
    return method.build(seed, keys, method.config() if method.config else None, seed=3), keys, recipe


@pytest.mark.parametrize(
    ("name", "patience"), [("dense", 2), *((name, None) for name, method in methods().items() if method.is_trainable)]
)
def test_every_method_holds_at_least_what_was_counted_from_its_shapes(
    seed: Path, text: Callable[[str], DomainText], tmp_path: Path, name: str, patience: int | None
) -> None:
    config = replace(CONFIG, patience=patience)
    with shapes_only():
        model, keys, recipe = built(seed, name)
    assert {one.device.type for one in model.parameters()} == {"meta"}
    counted = least_needs(model, trainable(model, recipe.learns(keys)), config, CPU)
    model, keys, recipe = built(seed, name)
    held: list[TrainingTensors] = []
    with observed_by(held.append):
        events = train(model, [text(keys[0])], config, tmp_path, only_experts=recipe.learns(keys))
        stated = next(event for event in events if isinstance(event, Requirements))
        list(events)
    (one,) = held
    assert (counted.weights, counted.loaded) == (one.weight_bytes(), one.weight_bytes())
    assert counted.gradients == one.trained_bytes() == counted.result
    assert 0.99 * one.optimizer_bytes() < counted.optimizer <= one.optimizer_bytes()
    assert counted.best == (one.trained_bytes() if patience else 0)
    assert stated.memory_bytes == counted.on_device
    assert 0.8 * folder_size(checkpoint_folder(tmp_path, 2)) < stated.checkpoints_bytes
    assert stated.checkpoints_bytes <= folder_size(checkpoint_folder(tmp_path, 2))


@every_method
def test_what_exceeds_the_memory_is_refused_before_the_first_update(
    seed: Path, text: Callable[[str], DomainText], tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, keys, recipe = built(seed, name)
    learns = recipe.learns(keys)
    least = least_needs(model, trainable(model, learns), CONFIG, CPU).on_device

    def run() -> list[Event]:
        return list(train(model, [text(keys[0])], CONFIG, tmp_path, only_experts=learns))

    monkeypatch.setattr(module, "most_memory", lambda _: least - 1)
    with pytest.raises(DoesNotFitError, match="It takes at least"):
        run()
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(module, "most_memory", lambda _: least)
    assert sum(isinstance(event, Step) for event in run()) == 2


def test_the_nearest_options_that_fit_are_named(seed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, _, _ = built(seed, "dense")
    trained = trainable(model, None)
    full = least_needs(model, trained, CONFIG, CPU)
    short = least_needs(model, trained, replace(CONFIG, optimizer="adamw_8bit"), CPU)
    assert short.optimizer < full.optimizer
    monkeypatch.setattr(module, "most_memory", lambda _: short.on_device)
    with pytest.raises(DoesNotFitError) as refused:
        module.require_memory(full, CONFIG, lambda config: least_needs(model, trained, config, CPU))
    assert refused.value.next_step == "It may fit with optimizer adamw_8bit."
    with pytest.raises(DoesNotFitError, match="choose a smaller seed model"):  # bits are saved in one process only
        module.require_memory(full, CONFIG)


def test_weights_in_bfloat16_take_half_and_are_given_no_option_of_8_bits(
    seed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, keys, recipe = built(seed, "dense")
    trained = trainable(model, recipe.learns(keys))
    in_bf16 = replace(CONFIG, precision="bf16_weights")
    full, half = (least_needs(model, trained, one, CPU) for one in (CONFIG, in_bf16))
    assert (half.gradients, half.optimizer) == (full.gradients // 2, full.optimizer)
    monkeypatch.setattr(module, "most_memory", lambda _: 1)
    with pytest.raises(DoesNotFitError, match="It takes at least"):
        module.require_memory(half, in_bf16, lambda config: least_needs(model, trained, config, CPU))


def test_a_gpu_without_a_number_is_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers: list[Any] = []

    def of(value: Any) -> Callable[[Any], Any]:
        return lambda number: numbers.append(number) or value

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.cuda, "mem_get_info", of((50, 100)))
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", of(0.4))
    monkeypatch.setattr(torch.cuda, "memory_reserved", of(5))
    assert device_module.most_memory(GPU) == 40
    assert device_module.most_memory(torch.device("cuda:1")) == 40
    assert numbers == [3, 3, 3, 1, 1, 1]


def test_frozen_weights_in_4_bits_save_memory_of_a_gpu_but_are_loaded_in_full(seed: Path) -> None:
    model, keys, recipe = built(seed, "lora")
    trained = trainable(model.to(torch.bfloat16), recipe.learns(keys))
    full = least_needs(model, trained, replace(CONFIG, precision="bf16"), GPU)
    short = least_needs(model, trained, replace(CONFIG, precision="bf16", load_in_4bit=True), GPU)
    assert short.weights < full.weights
    assert (full.on_device, short.on_device >= short.loaded) == (full.weights + full.gradients + full.optimizer, True)
    assert full.beside_gpu == full.checkpoint == 3 * full.gradients
    assert full.event(CONFIG).gpu_bytes == full.on_device


def test_a_large_seed_is_refused_before_a_weight_is_read(seed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SOON_BUILT", 0)
    builds: list[Any] = []

    def build() -> Any:
        builds.append(built(seed, "demix")[0])
        return builds[-1]

    require_memory_to_build(build, seed, None, CONFIG, CPU)
    monkeypatch.setattr(module, "most_memory", lambda _: 1000)
    with pytest.raises(DoesNotFitError):
        require_memory_to_build(build, seed, None, CONFIG, CPU)
    assert {one.device.type for model in builds for one in model.parameters()} == {"meta"}


def test_of_a_divided_model_the_weights_are_counted_before_it_is_built(
    seed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SOON_BUILT", 0)
    model, _, _ = built(seed, "dense")
    stored = least_needs(model, trainable(model, None), CONFIG, CPU).loaded
    sizes = {"cpu": stored, "cuda": 0}  # of a GPU each process takes a part that is not known yet
    monkeypatch.setattr(module, "most_memory", lambda device: sizes[device.type])
    divided = replace(CONFIG, shard=True)
    require_memory_to_build(lambda: built(seed, "dense")[0], seed, None, divided, GPU)
    sizes["cpu"] -= 1
    with pytest.raises(DoesNotFitError):
        require_memory_to_build(lambda: built(seed, "dense")[0], seed, None, divided, GPU)


def test_a_copy_of_a_large_checkpoint_is_named_where_there_is_one_before_the_last(
    seed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, keys, recipe = built(seed, "dense")
    needs = least_needs(model, trainable(model, recipe.learns(keys)), CONFIG, CPU)
    several = replace(CONFIG, checkpoint_every=1)
    assert "a copy" not in needs.event(several).sentence
    monkeypatch.setattr(module, "LEAST_BYTES", needs.checkpoint)
    sentence = needs.event(several).sentence
    assert f"on top, {megabytes(needs.checkpoint)} for a copy of a checkpoint where they are free, and" in sentence
    assert "a copy" not in needs.event(CONFIG).sentence


def test_a_process_can_have_what_it_has_and_what_is_free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine, process = tmp_path / "meminfo", tmp_path / "status"
    machine.write_text("MemTotal: 900 kB\nMemAvailable: 100 kB\nSwapFree: 20 kB\nHugePages_Total: 0\n")
    process.write_text("Name:\tpython\nVmRSS:\t   7 kB\n")
    monkeypatch.setattr(device_module, "_MACHINE", machine)
    monkeypatch.setattr(device_module, "_PROCESS", process)
    monkeypatch.setattr(device_module, "_CGROUP", tmp_path)
    assert device_module.most_memory(CPU) == 127 * 1024
    assert device_module.free_main_memory() == 100 * 1024
    for name, value in {
        "memory.max": 50 * 1024,
        "memory.current": 10 * 1024,
        "memory.stat": "inactive_file 2048",
    }.items():
        (tmp_path / name).write_text(f"{value}\n")
    assert device_module.most_memory(CPU) == (50 - 10 + 2 + 20 + 7) * 1024
    assert device_module.free_main_memory() == (50 - 10 + 2) * 1024
    machine.unlink()
    assert device_module.free_main_memory() is None
    assert device_module.most_memory(CPU) is None
