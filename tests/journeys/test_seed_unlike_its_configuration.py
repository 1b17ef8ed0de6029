"""A seed whose files contradict its configuration is taken in as its weights are, and then used as any other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from engine.config import ModelConfig
from engine.models.families import fresh_model
from engine.text.tokenizer import train_tokenizer
from tests.journeys.conftest import SHAPE, TRAINING, Do, done
from tests.journeys.test_export import logits_of, our_logits
from ui.cli.app import main
from workbench.registry import seeds
from workbench.registry.database import reading
from workbench.store.storage import get_storage


@pytest.fixture
def odd(trained: Do, tmp_path: Path) -> Path:
    """A seed of two tables that are called tied, with a padding id and rows that no token has."""
    folder = tmp_path / "odd"
    tokenizer = train_tokenizer(["the court held that the statute applies " * 20], 300)
    fresh_model(ModelConfig(**SHAPE), 320).save_pretrained(folder)
    tokenizer.save(folder)
    head = {"lm_head.weight": torch.randn(320, 32, generator=torch.Generator().manual_seed(1))}
    save_file(load_file(folder / "model.safetensors") | head, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"pad_token_id": 320}))
    card = done(trained({"kind": "make-seed", "name": "odd", "source": "folder", "location": str(folder)}))
    assert "tie_word_embeddings is false now" in card.result["changes"]
    assert "pad_token_id of config.json names 320" in card.result["changes"]
    return folder


def test_its_row_says_what_its_weights_are(odd: Path) -> None:
    del odd
    with reading() as session:
        config = seeds.get_seed(session, "odd").config
    assert (config["tie_word_embeddings"], config["pad_token_id"]) == (False, None)


@pytest.mark.parametrize("method", ["dense", "demix", "lora"])
def test_its_experts_are_trained_generate_and_leave(trained: Do, odd: Path, tmp_path: Path, method: str) -> None:
    del odd
    training = {**TRAINING, "num_steps": 2}
    spec = {"kind": "train-joint", "name": "new", "seed_model": "odd", "domains": ["court"], "method": method}
    done(trained({**spec, "training": training}))
    name = "new/dense" if method == "dense" else "new/court"
    assert main(["generate", name, "the court", "--max-tokens", "5", "--temperature", "1.5"]) == 0
    assert main(["expert", "export", name, str(tmp_path / "out"), "--here"]) == 0
    theirs = logits_of(AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32))
    torch.testing.assert_close(our_logits(name), theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("trained")
def test_a_token_without_a_row_is_named_with_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = train_tokenizer(["the court held that the statute applies " * 20], 300)
    size = tokenizer.vocab_size
    fresh_model(ModelConfig(**SHAPE), size).save_pretrained(tmp_path / "small")
    tokenizer.save(tmp_path / "small")
    state = json.loads((tmp_path / "small/tokenizer.json").read_text())
    state["added_tokens"].append({**state["added_tokens"][0], "id": size, "content": "[PAD]"})
    (tmp_path / "small/tokenizer.json").write_text(json.dumps(state))
    assert main(["seed", "add", "small", str(tmp_path / "small"), "--here"])
    message = capsys.readouterr().err
    assert f"{size + 1} entries, but the model {size} rows: none for “[PAD]” ({size})" in message
    assert "remove them from tokenizer.json" in message


def test_one_file_of_a_folder_becomes_a_seed_of_its_weights(trained: Do, tmp_path: Path) -> None:
    train_tokenizer(["the court held that the statute applies " * 20], 300).save(tmp_path)
    for seed, name in enumerate(("model", "second")):
        fresh_model(ModelConfig(**SHAPE), 300, seed).save_pretrained(tmp_path)
        (tmp_path / "model.safetensors").rename(tmp_path / f"{name}.part")
    for name in ("model", "second"):
        (tmp_path / f"{name}.part").rename(tmp_path / f"{name}.safetensors")
    file = str(tmp_path / "second.safetensors")
    done(trained({"kind": "make-seed", "name": "second", "source": "file", "location": file}))
    with reading() as session:
        row = seeds.seed_row(session, "second")
        artifact = row.artifact_id
    stored, given = (load_file(path) for path in (get_storage().path(artifact) / "model.safetensors", Path(file)))
    assert all(torch.equal(stored[name], given[name]) for name in given)
