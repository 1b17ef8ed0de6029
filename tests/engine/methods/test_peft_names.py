"""An adapter is the same expert under the names that other trainers give its tensors; others say what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from engine.config import ModelConfig
from engine.errors import ModelError
from engine.methods.lora.peft_import import read_adapter
from engine.models.families import fresh_model

SHAPE = ModelConfig(num_layers=2, width=32, num_heads=4, ffn_width=64, max_positions=64)
MAP = "base_model.model.model.layers.{}.self_attn.q_proj.lora_{}.weight"
Tensors = dict[str, torch.Tensor]
Rename = Callable[[str], str]


def plain() -> Tensors:
    draw = torch.Generator().manual_seed(1)
    shapes = {"A": (4, 32), "B": (32, 4)}
    return {MAP.format(i, side): torch.randn(shapes[side], generator=draw) for i in (0, 1) for side in "AB"}


def take(folder: Path, tensors: Tensors, lm: Any = None, **config: Any) -> tuple[Tensors, list[str]]:
    """What an adapter of these tensors becomes, and what is said of it."""
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 4, "lora_alpha": 8} | config))
    changes: list[str] = []
    return read_adapter(lm or fresh_model(SHAPE, 300), folder, changes), changes


NAMES: dict[str, tuple[Rename, str]] = {
    "compiled": (lambda name: f"_orig_mod.{name}", "“_orig_mod.”"),
    "compiled inside": (lambda name: name.replace("model.model.", "model._orig_mod.model."), "“_orig_mod.”"),
    "compiled by layer": (lambda name: name.replace("self_attn", "_orig_mod.self_attn"), "“_orig_mod.”"),
    "parallel": (lambda name: f"module.{name}", "“module.”"),
    "sharded": (lambda name: name.replace("layers.", "layers._fsdp_wrapped_module."), "“_fsdp_wrapped_module.”"),
    "of a model of images": (
        lambda name: name.replace("model.layers", "language_model.model.layers"),
        "“language_model.”",
    ),
    "of a newer one": (lambda name: name.replace("model.layers", "model.language_model.layers"), "“language_model.”"),
    "without model": (lambda name: name.replace("model.model.model.", "model.model."), "lack “model.”"),
    "bare": (lambda name: name.removeprefix("base_model.model."), "do not begin with “base_model.model.”"),
    "barest": (lambda name: name.removeprefix("base_model.model.model."), "lack “model.”"),
    "named": (lambda name: name.replace(".weight", ".default.weight"), "own name, “default”"),
    "named lora": (lambda name: name.replace(".weight", ".lora.weight"), "own name, “lora”"),
    "several": (lambda name: f"module._orig_mod.{name}".replace(".weight", ".x.weight"), "“module.”"),
}


@pytest.mark.parametrize(("rename", "words"), NAMES.values(), ids=NAMES)
def test_names_of_other_trainers_give_the_same_tensors_and_are_reported(
    tmp_path: Path, rename: Rename, words: str
) -> None:
    expected, nothing = take(tmp_path, plain())
    state, changes = take(tmp_path, {rename(name): one for name, one in plain().items()})
    assert nothing == []
    assert words in " ".join(changes)
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[name], expected[name]) for name in expected)


def also(name: str, shape: tuple[int, ...] = (4, 32)) -> Tensors:
    return plain() | {name: torch.ones(shape)}


REFUSED: dict[str, tuple[Tensors, str]] = {
    "another prefix": (
        {f"my.own.{name}": one for name, one in plain().items()},
        "begin with “my.own.base_model.model.”",
    ),
    "two adapters": (also(MAP.format(0, "A").replace(".weight", ".second.weight")), "several adapters"),
    "too many layers": (also(MAP.format(7, "A")), "but the seed has 2 layers. Give the seed"),
    "another family": (also("base_model.model.transformer.h.0.attn.c_attn.lora_A.weight"), "nothing of this name"),
    "the output": (also("base_model.model.lm_head.lora_A.weight"), "has no map. Merge the adapter"),
    "magnitudes": (also("base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector"), "magnitude of DoRA"),
    "another tool": (also("model.layers.0.self_attn.q_proj.lora_down.weight"), "not a name of PEFT's"),
    "a bias": (also("base_model.model.model.layers.0.self_attn.q_proj.lora_B.bias"), "a bias"),
    "a table": (also("base_model.model.model.embed_tokens.weight", (300, 32)), "has other numbers than the seed's"),
    "a larger table": (also("base_model.model.lm_head.weight", (302, 32)), "is 302 x 32 of F32 than the seed's"),
}


@pytest.mark.parametrize(("tensors", "words"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused_with_its_own_remedy(tmp_path: Path, tensors: Tensors, words: str) -> None:
    with pytest.raises(ModelError) as refused:
        take(tmp_path, tensors)
    assert words in f"{refused.value}"


@pytest.mark.parametrize("end", ["weight", "base_layer.weight", "modules_to_save.default.weight"])
def test_a_table_that_equals_the_seeds_is_left_out_and_reported(tmp_path: Path, end: str) -> None:
    lm = fresh_model(SHAPE, 300)
    name = f"base_model.model.model.embed_tokens.{end}"
    state, changes = take(tmp_path, plain() | {name: lm.get_input_embeddings().weight.detach().clone()}, lm)
    assert changes == [f"“{name}” equals the seed's and was left out."]
    assert len(state) == 6


def test_an_adapter_that_changes_nothing_is_reported(tmp_path: Path) -> None:
    dead = {name: torch.zeros_like(one) if "lora_B" in name else one for name, one in plain().items()}
    _, changes = take(tmp_path, dead)
    assert changes == ["Every change of the adapter is zero: the expert equals its seed."]
