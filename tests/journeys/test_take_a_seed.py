"""A seed from a folder: taken with its own tokenizer, or refused with words, and nothing left behind."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from engine.text.tokenizer import load_tokenizer, train_tokenizer
from tests.journeys.conftest import Do
from workbench.answers.cards import JobCard
from workbench.registry import seeds
from workbench.registry.database import reading
from workbench.store.storage import get_storage


@pytest.fixture
def folder(trained: Do, tmp_path: Path) -> Path:
    """A model's folder as transformers would save it."""
    with reading() as session:
        source = get_storage().path(seeds.seed_row(session, "seed").artifact_id)
    shutil.copytree(source, tmp_path / "model")
    return tmp_path / "model"


def take(do: Do, folder: Path) -> JobCard:
    return do({"kind": "make-seed", "name": "taken", "source": "folder", "location": str(folder)})


def names() -> list[str]:
    with reading() as session:
        return [seed.name for seed in seeds.list_seeds(session)]


def test_a_folder_becomes_a_seed_that_trains_a_demix_model(trained: Do, folder: Path) -> None:
    assert take(trained, folder).state == "done"
    with reading() as session:
        card = seeds.get_seed(session, "taken")
    assert card.tokenizer_sha256 == load_tokenizer(folder).sha256
    steps = {"num_steps": 2, "block_size": 32}
    job_spec = {"kind": "train-joint", "name": "again", "seed_model": "taken", "domains": ["sea"], "training": steps}
    assert trained(job_spec).state == "done"


def test_a_tokenizer_of_another_model_is_refused(trained: Do, folder: Path) -> None:
    words = " ".join(f"word{i} other{i * 7}" for i in range(3000))
    train_tokenizer([words], 2000).save(folder)
    card = take(trained, folder)
    assert card.state == "failed"
    assert "The tokenizer has 2,000 entries, but the model 320 rows" in card.error
    assert names() == ["seed"]


def test_weights_that_could_run_code_are_refused(trained: Do, folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    card = take(trained, folder)
    assert card.state == "failed"
    assert "holds its weights only as pytorch_model.bin, a pickle" in card.error
    assert names() == ["seed"]


def test_a_family_that_cannot_be_cut_open_is_refused_by_name(trained: Do, folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "bert", "architectures": ["BertModel"]}))
    card = take(trained, folder)
    assert card.state == "failed"
    assert card.error
    assert names() == ["seed"]
    assert len(list((get_storage().folder).glob(".*new"))) == 0
