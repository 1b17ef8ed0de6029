"""The precision of weights: what is stored stays so, what is trained is held in float32, GPUs compute in bfloat16."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from engine.analysis.averaging import average
from engine.config import LoraConfig, ModelConfig, Precision, TrainingConfig
from engine.files import ArtifactRef, new_folder
from engine.loading.loaded_base import load_base
from engine.methods.base import Method
from engine.methods.registry import get_method
from engine.models.expert_model import CompositeModel
from engine.models.families import fresh_model, load_model
from engine.models.rows import Rows
from engine.text.blocks import Tokens
from engine.training.checkpoint import checkpoint_folder, state_at
from engine.training.data import DomainText
from engine.training.loop import train
from engine.training.optimizer import in_training_precision, precision_on

SHAPE = ModelConfig(num_layers=3, width=32, num_heads=4, ffn_width=64, max_positions=64)
CONFIG = TrainingConfig(num_steps=4, block_size=16, learning_rate=0.01, checkpoint_every=2, evaluate_every=4)
IDS = torch.arange(3, 43)[None]
HALF = [torch.bfloat16, torch.float16]


def seed_in(dtype: torch.dtype, folder: Path) -> ArtifactRef:
    with new_folder(folder) as new:
        fresh_model(SHAPE, 300).to(dtype).save_pretrained(new)
    return ArtifactRef(folder, ArtifactRef(folder).check())


def text() -> DomainText:
    ids = np.random.default_rng(7).integers(3, 300, 2000).astype(np.uint16)
    tokens = Tokens(ids, np.zeros(1, dtype=np.int64))
    return DomainText("law", "law", tokens, tokens)


def trained(
    method: Method, seed: ArtifactRef, folder: Path, precision: Precision = "auto", *, stop_at: int | None = None
) -> Any:
    """A model of one expert, trained for the four steps; `stop_at` interrupts it there one time."""
    config, learns = replace(CONFIG, precision=precision), ["law"] if method.base_is_frozen else None
    if stop_at is not None:
        model = method.build(seed.folder, ["law"])
        events = train(model, [text()], config, folder, only_experts=learns)
        for event in events:
            if getattr(event, "step", 0) == stop_at:
                break
        events.close()  # type: ignore[attr-defined]
    model = method.build(seed.folder, ["law"])
    list(train(model, [text()], config, folder, only_experts=learns))
    return model


def kept(method: Method, model: Any, seed: ArtifactRef, folder: Path) -> tuple[ArtifactRef, ArtifactRef]:
    """The base and the expert as files."""
    base = seed
    if not method.base_is_frozen:
        with new_folder(folder / "base") as new:
            method.save_base(model, new)
        base = ArtifactRef(folder / "base", ArtifactRef(folder / "base").check())
    with new_folder(folder / "expert") as new:
        method.save_expert(model, "law", new, base_sha256=str(base.sha256), tokenizer_sha256="t")
    return base, ArtifactRef(folder / "expert", ArtifactRef(folder / "expert").check())


@pytest.mark.parametrize("dtype", [*HALF, torch.float32])
def test_a_seed_keeps_its_precision_and_computes_in_it_as_transformers_does(dtype: torch.dtype, tmp_path: Path) -> None:
    seed_in(dtype, tmp_path / "seed")
    ours, theirs = load_model(tmp_path / "seed"), AutoModelForCausalLM.from_pretrained(tmp_path / "seed")
    assert {one.dtype for one in ours.parameters()} == {dtype} == {ours.config.dtype}
    assert torch.equal(ours(input_ids=IDS).logits, theirs(input_ids=IDS).logits)


@pytest.mark.parametrize("precision", ["auto", "bf16_weights"])
@pytest.mark.parametrize("name", ["demix", "dense", "domain-token", "lora", "mode"])
def test_an_expert_is_hosted_as_it_was_after_its_training(name: str, precision: Precision, tmp_path: Path) -> None:
    method, seed = get_method(name), seed_in(torch.bfloat16, tmp_path / "seed")
    model = trained(method, seed, tmp_path / "training", precision)
    if name == "mode":
        model.names = ("law",)
    base, expert = kept(method, model, seed, tmp_path)
    rows, targets = Rows.all_to("law", 1), IDS.roll(-1)
    hosted = load_base(base, {"law": expert}).view(["law"])
    with torch.no_grad():
        logits, before = hosted(IDS, rows), model.eval()(IDS, rows)
    assert logits.dtype == torch.bfloat16
    assert torch.equal(logits, before)
    scores = hosted.token_scores(IDS, targets, rows).logprobs_BT
    assert scores.dtype == torch.float32
    expected = logits.float().log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    assert torch.allclose(scores, expected, atol=1e-5)


def test_a_frozen_seed_does_not_change_and_its_adapter_is_in_float32(tmp_path: Path) -> None:
    seed, method = seed_in(torch.bfloat16, tmp_path / "seed"), get_method("lora")
    model, untouched = trained(method, seed, tmp_path / "training"), load_model(seed.folder).state_dict()
    shared = {name.replace(".shared.", "."): one for name, one in model.shared_state().items()}
    assert all(one.dtype == torch.bfloat16 and torch.equal(one, untouched[name]) for name, one in shared.items())
    assert {one.dtype for one in model.expert_parameters("law").values()} == {torch.float32}


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # of peft
def test_peft_computes_the_same_with_an_exported_adapter_of_a_seed_in_bfloat16(tmp_path: Path) -> None:
    seed, method = seed_in(torch.bfloat16, tmp_path / "seed"), get_method("lora")
    model = trained(method, seed, tmp_path / "training")
    base, expert = kept(method, model, seed, tmp_path)
    (tmp_path / "adapter").mkdir()
    method.export_adapter(base, expert, tmp_path / "adapter", base_model=str(seed.folder))
    theirs = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(seed.folder), tmp_path / "adapter")
    with torch.no_grad():
        assert torch.equal(theirs(input_ids=IDS).logits, model.eval()(IDS, Rows.all_to("law", 1)))


@pytest.mark.parametrize("name", ["demix", "lora"])
def test_a_full_model_of_a_seed_in_bfloat16_is_saved_in_it(name: str, tmp_path: Path) -> None:
    seed, method = seed_in(torch.bfloat16, tmp_path / "seed"), get_method(name)
    lm = method.load_full_model(*kept(method, trained(method, seed, tmp_path / "training"), seed, tmp_path))
    lm.save_pretrained(tmp_path / "out")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert theirs.dtype == torch.bfloat16
    assert torch.equal(theirs(input_ids=IDS).logits, lm(input_ids=IDS).logits)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "bf16_weights"])
@pytest.mark.parametrize("name", ["demix", "lora"])
def test_a_resumed_training_of_a_seed_in_bfloat16_is_the_uninterrupted_one(
    name: str, precision: Precision, tmp_path: Path
) -> None:  # L17
    seed, method = seed_in(torch.bfloat16, tmp_path / "seed"), get_method(name)
    trained(method, seed, tmp_path / "straight", precision)
    trained(method, seed, tmp_path / "resumed", precision, stop_at=3)
    straight, resumed = (state_at(tmp_path / run, CONFIG.num_steps) for run in ("straight", "resumed"))
    assert straight.keys() == resumed.keys()
    assert all(torch.equal(one, resumed[name]) for name, one in straight.items())


def test_what_is_trained_is_held_in_float32_by_the_checkpoints(tmp_path: Path) -> None:
    model = trained(get_method("demix"), seed_in(torch.bfloat16, tmp_path / "seed"), tmp_path / "training")
    state = state_at(tmp_path / "training", CONFIG.num_steps)
    assert checkpoint_folder(tmp_path / "training", CONFIG.num_steps).exists()
    assert {one.dtype for one in state.values()} == {torch.float32}
    stored = model.shared_parameters() | model.expert_parameters("law")
    assert all(torch.equal(one, state[f"parameters/{name}"].bfloat16()) for name, one in stored.items())


def test_training_in_fp32_is_that_of_the_same_seed_in_float32(tmp_path: Path) -> None:
    half, full = seed_in(torch.bfloat16, tmp_path / "half"), tmp_path / "full"
    load_model(half.folder).float().save_pretrained(full)
    trained(get_method("demix"), half, tmp_path / "one", "fp32")
    trained(get_method("demix"), ArtifactRef(full), tmp_path / "two", "fp32")
    one, two = (state_at(tmp_path / run, CONFIG.num_steps) for run in ("one", "two"))
    assert all(torch.equal(tensor, two[name]) for name, tensor in one.items())


def test_bf16_leaves_frozen_weights_in_their_precision_and_fp32_does_not(tmp_path: Path) -> None:
    model: Any = get_method("lora").build(
        seed_in(torch.bfloat16, tmp_path / "seed").folder, ["law"], LoraConfig(rank=2)
    )
    weight = model.lm.get_input_embeddings().weight
    for precision, during in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
        with in_training_precision(model, [], precision, torch.device("cpu")):  # type: ignore[arg-type]
            assert weight.dtype == during
        assert weight.dtype == torch.bfloat16


@pytest.mark.parametrize(("has_units", "expected"), [(True, "bf16"), (False, "fp32")])
def test_auto_is_bf16_on_a_gpu_that_has_it_and_fp32_elsewhere(
    has_units: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has_units or including_emulation)
    assert precision_on("auto", torch.device("cuda")) == expected
    assert {precision_on("auto", torch.device(other)) for other in ("cpu", "mps")} == {"fp32"}
    assert precision_on("fp32", torch.device("cuda")) == "fp32"
    assert precision_on("bf16", torch.device("cpu")) == "bf16"
    assert TrainingConfig().precision == "auto"


def test_an_average_of_models_in_bfloat16_is_summed_finer_and_stored_in_it() -> None:
    one, two, three = (fresh_model(SHAPE, 300, seed).bfloat16() for seed in range(3))
    weights = {"one": 0.5, "two": 0.3, "three": 0.2}
    models = {"one": lambda: one, "two": lambda: two, "three": lambda: three}
    parts = [
        lm.lm_head.weight.double() * weight for lm, weight in zip((one, two, three), weights.values(), strict=True)
    ]
    expected = sum(parts).bfloat16()  # type: ignore[union-attr]
    *_, lm = average(models, weights)
    assert lm.dtype == torch.bfloat16
    assert torch.equal(lm.lm_head.weight, expected)


@torch.no_grad()
def test_experts_of_seeds_in_different_precision_mix(tmp_path: Path) -> None:
    method, hosted, separate = get_method("demix"), [], []
    for number, dtype in enumerate((torch.bfloat16, torch.float32)):
        root, key = tmp_path / str(number), f"expert-{number}"
        model: Any = method.build(seed_in(dtype, root / "seed").folder, [key])
        separate.append(model.eval()(IDS, Rows.all_to(key, 1)).float())
        hosted.append(model)
    both = CompositeModel(hosted)
    assert torch.equal(both(IDS.expand(2, -1), Rows.one_each(both.keys)).float(), torch.cat(separate))
