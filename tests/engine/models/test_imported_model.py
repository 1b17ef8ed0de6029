"""A seed that differs from its configuration is described as it is, or refused by the name of what differs."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.config import ModelConfig
from engine.errors import ModelError
from engine.files import ArtifactRef, write_manifest
from engine.methods.registry import get_method
from engine.models.families import fresh_model, load_model
from engine.models.imported_model import Fingerprint, import_model
from engine.text.tokenizer import train_tokenizer

SHAPE = ModelConfig(num_layers=2, width=32, num_heads=4, ffn_width=64, max_positions=64)
EMBED, HEAD = "model.embed_tokens.weight", "lm_head.weight"
Tensors = dict[str, torch.Tensor]


def seed(folder: Path, change: Any = dict, **config: Any) -> Path:
    """A model of 300 rows with a tokenizer, whose tensors and configuration are then changed."""
    fresh_model(SHAPE, 300).save_pretrained(folder)
    train_tokenizer(["the court held that it applies"], 290).save(folder)
    save_file(change(load_file(folder / "model.safetensors")), folder / "model.safetensors", metadata={"format": "pt"})
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(values | config))
    return folder


def two_tables(tensors: Tensors) -> Tensors:
    return tensors | {HEAD: torch.randn(300, 32)}


def part_of_table(value: float) -> Any:
    def change(tensors: Tensors) -> Tensors:
        tensors[EMBED][290:] = value
        return tensors

    return change


def test_two_tables_that_a_configuration_ties_are_both_kept_and_untied(tmp_path: Path) -> None:
    imported = import_model(seed(tmp_path / "from", two_tables))
    assert "tie_word_embeddings is false now" in imported.changes[0]
    expected = Fingerprint.of(imported.lm)
    imported.lm.save_pretrained(tmp_path / "again")
    expected.require_same(tmp_path / "again")
    assert json.loads((tmp_path / "again/config.json").read_text())["tie_word_embeddings"] is False


@pytest.mark.parametrize("method", ["dense", "demix"])
@pytest.mark.parametrize("is_older", [False, True])
def test_an_expert_of_a_seed_with_two_tables_is_loaded_with_its_base(
    tmp_path: Path, method: str, is_older: bool
) -> None:
    chosen, lm = get_method(method), load_model(seed(tmp_path / "from", two_tables))
    model = chosen.new_placement().build(lm, ["a"], None, 0)  # type: ignore[attr-defined]
    base, expert = tmp_path / "base", tmp_path / "expert"
    for folder in (base, expert):
        folder.mkdir()
    chosen.save_base(model, base)
    if is_older:  # a base as it was saved while such tables were called tied
        values = json.loads((base / "config.json").read_text())
        (base / "config.json").write_text(json.dumps(values | {"tie_word_embeddings": True}))
    sha256 = write_manifest(base)
    chosen.save_expert(model, "a", expert, base_sha256=sha256, tokenizer_sha256="")
    full = chosen.load_full_model(ArtifactRef(base, sha256), ArtifactRef(expert, write_manifest(expert)))
    assert torch.equal(Fingerprint.of(full).logits, Fingerprint.of(load_model(tmp_path / "from")).logits)


def test_two_equal_tables_stay_tied(tmp_path: Path) -> None:
    folder = seed(tmp_path, lambda tensors: tensors | {HEAD: tensors[EMBED].clone()})
    imported = import_model(folder)
    assert imported.lm.config.tie_word_embeddings
    assert imported.changes == ()


def test_a_missing_output_table_is_named_with_its_field(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"tie_word_embeddings in .* is false, but .* output table is missing"):
        import_model(seed(tmp_path, tie_word_embeddings=False))


@pytest.mark.parametrize("value", [-1, 300, 128_004])
@pytest.mark.parametrize("field", ["pad_token_id", "decoder_start_token_id"])
def test_a_token_id_without_a_row_is_left_out_and_reported(tmp_path: Path, field: str, value: int) -> None:
    imported = import_model(seed(tmp_path, **{field: value}))
    assert getattr(imported.lm.config, field, None) is None
    if field == "pad_token_id":
        assert imported.changes == (
            f"pad_token_id of config.json names {value}, outside the model's 300 rows: it was left out.",
        )


def test_of_several_ending_tokens_those_with_a_row_stay(tmp_path: Path) -> None:
    folder = seed(tmp_path, eos_token_id=[2, 5, 300])
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 900], "pad_token_id": 901}))
    imported = import_model(folder)
    assert imported.lm.config.eos_token_id == [2, 5]
    assert imported.lm.generation_config.eos_token_id == [2]
    assert [change.split(",")[0] for change in imported.changes] == [
        "eos_token_id of config.json names 300",
        "eos_token_id of generation_config.json names 900",
        "pad_token_id of generation_config.json names 901",
    ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            part_of_table(float("nan")),
            f"“{EMBED}” .* holds 320 infinite numbers or NaN, in all of its rows from 290 on",
        ),
        (
            lambda tensors: tensors | {"model.norm.weight": torch.full((32,), torch.inf)},
            "“model.norm.weight” .* holds 32",
        ),
        (
            lambda tensors: {f"module.{name}": tensor for name, tensor in tensors.items()},
            r"begin with “module\.” \(of DistributedDataParallel or DeepSpeed\)",
        ),
        (
            lambda tensors: {f"my.own.{name}": tensor for name, tensor in tensors.items()},
            r"begin with “my\.own\.”: “my\.own\.model",
        ),
    ],
)
def test_the_tensor_at_fault_is_named(tmp_path: Path, change: Any, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        import_model(seed(tmp_path, change))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda tensors: tensors | {"model.layers.0.self_attn.q_proj.bias": torch.ones(32)},
            "1 tensor of the files, “mo",
        ),
        (lambda tensors: {name: tensor.double() for name, tensor in tensors.items()}, "20 tensors in double precision"),
    ],
)
def test_what_is_left_out_or_rounded_is_reported(tmp_path: Path, change: Any, words: str) -> None:
    assert words in " ".join(import_model(seed(tmp_path, change)).changes)


def test_which_of_two_sets_of_weights_was_read_is_reported(tmp_path: Path) -> None:
    (seed(tmp_path) / "model.safetensors.index.json").write_text('{"weight_map": {"x": "y.safetensors"}}')
    assert import_model(tmp_path).changes == (
        "model.safetensors was read, and not the files that model.safetensors.index.json lists.",
    )


def test_the_command_for_mixed_precision_makes_a_seed_of_the_same_numbers(tmp_path: Path) -> None:
    folder = seed(
        tmp_path / "a model", lambda tensors: {n: t if "norm" in n else t.bfloat16() for n, t in tensors.items()}
    )
    with pytest.raises(ModelError) as refused:
        import_model(folder)
    program, *arguments = shlex.split(refused.value.next_step.split(": ", 1)[1])
    assert program == "python"
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    lm = import_model(tmp_path / "a model-float32").lm
    stored = load_file(folder / "model.safetensors")
    assert all(torch.equal(one, stored[name].float()) for name, one in lm.named_parameters())


def test_a_model_that_is_saved_as_another_is_refused(tmp_path: Path) -> None:
    expected = Fingerprint.of(load_model(seed(tmp_path)))
    save_file({n: t + 1 for n, t in load_file(tmp_path / "model.safetensors").items()}, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match="computes other numbers"):
        expected.require_same(tmp_path)
