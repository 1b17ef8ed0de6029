"""Loading reads each weight once, into the place where it stays; weights that no computation can have are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.config import ModelConfig
from engine.errors import ModelError
from engine.files import ArtifactRef, new_folder
from engine.methods.mode.config import ModeConfig
from engine.methods.registry import get_method
from engine.models.families import fresh_model, load_model
from engine.models.imported_model import import_model
from engine.models.rows import Rows
from engine.models.stored_tensors import StoredTensors

SHAPE = ModelConfig(num_layers=2, width=32, num_heads=4, ffn_width=64, max_positions=64)
UP = "model.layers.0.mlp.up_proj.weight"


@pytest.fixture
def seed(tmp_path: Path) -> ArtifactRef:
    with new_folder(tmp_path / "seed") as folder:
        fresh_model(SHAPE, 300).bfloat16().save_pretrained(folder)
    return ArtifactRef(tmp_path / "seed", ArtifactRef(tmp_path / "seed").check())


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> dict[int, Tensor]:
    """Every tensor that is read from a file, by its place in memory."""
    read, original = dict[int, Tensor](), StoredTensors.__getitem__

    def counted(self: StoredTensors, name: str) -> Tensor:
        tensor = original(self, name)
        read[tensor.data_ptr()] = tensor
        return tensor

    monkeypatch.setattr(StoredTensors, "__getitem__", counted)
    return read


def test_weights_are_where_they_were_read_to(seed: ArtifactRef, reads: dict[int, Tensor]) -> None:
    lm = load_model(seed.folder)
    assert {parameter.data_ptr() for parameter in lm.parameters()} == set(reads)
    assert lm.lm_head.weight is lm.model.embed_tokens.weight


def test_the_weights_of_a_base_are_where_they_were_read_to(
    seed: ArtifactRef, tmp_path: Path, reads: dict[int, Tensor]
) -> None:
    method = get_method("demix")
    model = method.build(seed.folder, ["one"])
    with new_folder(tmp_path / "base") as folder:
        method.save_base(model, folder)
    base = ArtifactRef(tmp_path / "base", ArtifactRef(tmp_path / "base").check())
    with new_folder(tmp_path / "one") as folder:
        method.save_expert(model, "one", folder, base_sha256=str(base.sha256), tokenizer_sha256="")
    reads.clear()
    loaded: Any = method.load(base, {"one": ArtifactRef(tmp_path / "one", ArtifactRef(tmp_path / "one").check())})
    assert {parameter.data_ptr() for parameter in loaded.shared_parameters().values()} <= set(reads)
    assert len(reads) == len(loaded.shared_state()) + len(loaded.expert_state("one"))  # nothing twice
    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.bfloat16}
    ids, rows = torch.arange(40)[None], Rows.all_to("one", 1)
    assert torch.equal(loaded(ids, rows), model.eval()(ids, rows))  # type: ignore[attr-defined]


def test_the_gates_of_mode_are_stored_in_float32(seed: ArtifactRef) -> None:
    model: Any = get_method("mode").build(seed.folder, ["one"], ModeConfig(num_blocks=2, expert_layers=1))
    state = model.model.expert_state("one")
    kinds = {name.rpartition(".")[2]: one.dtype for name, one in state.items()}
    assert (kinds["odds"], kinds["slope"], kinds["weight"]) == (torch.float32, torch.float32, torch.bfloat16)


def changed(folder: Path, name: str, change: Any) -> Path:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    save_file(tensors | {name: change(tensors[name])}, path, metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tensor: tensor.float(), "“model.layers.0.mlp.up_proj.weight” is in float32, most others in bfloat16"),
        (lambda tensor: tensor.half(), "“model.layers.0.mlp.up_proj.weight” is in float16, most others in bfloat16"),
        (lambda tensor: tensor.to(torch.float8_e4m3fn), "quantized: “model.layers.0.mlp.up_proj.weight” is in F8_E4M3"),
        (lambda tensor: (tensor * 100).to(torch.int8), "“model.layers.0.mlp.up_proj.weight” holds whole numbers"),
    ],
)
def test_weights_of_another_type_than_the_others_are_refused(seed: ArtifactRef, change: Any, words: str) -> None:
    folder = changed(seed.folder, UP, change)
    with pytest.raises(ModelError) as refused:
        import_model(folder)
    assert words in str(refused.value)


def test_what_a_model_does_not_read_may_be_of_any_type(seed: ArtifactRef) -> None:
    path = seed.folder / "model.safetensors"
    old = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4), "mask": torch.ones(2, dtype=torch.uint8)}
    save_file(load_file(path) | old, path, metadata={"format": "pt"})
    assert load_model(seed.folder).dtype == torch.bfloat16


def test_a_configuration_that_names_another_precision_does_not_count(seed: ArtifactRef) -> None:
    path = seed.folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"dtype": "float32"}))
    lm = load_model(seed.folder)
    assert (lm.dtype, lm.config.dtype) == (torch.bfloat16, torch.bfloat16)


def test_double_precision_is_loaded_in_float32(tmp_path: Path) -> None:
    fresh_model(SHAPE, 300).double().save_pretrained(tmp_path)
    assert load_model(tmp_path).dtype == torch.float32
