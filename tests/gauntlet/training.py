"""Trainings among the jobs of a campaign: all of one text, seed and settings, so all must end with the same weights."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path

from sqlalchemy import select

from workbench.kinds.data import ImportCorpus
from workbench.kinds.training.make_seed import MakeSeed
from workbench.kinds.training.train_joint import TrainJoint
from workbench.registry.database import reading
from workbench.schema.tables import Expert
from workbench.settings import Settings
from workbench.specs.base import Spec
from workbench.store.storage import get_storage

TEXT = "lessons"
SEED = "seed"
STEPS = 120
TRAINING = {
    **{"num_steps": STEPS, "block_size": 64, "learning_rate": 5e-3},
    **{"checkpoint_every": 10, "evaluate_every": 60},
}


def preparations(folder: Path) -> list[Spec]:
    """The jobs before the first training: its text and its seed model."""
    chance = random.Random(0)
    words = ["court", "sea", "salt", "bread", "judge", "sail", "oven", "wind", "law", "knead"]
    lines = [json.dumps({"text": " ".join(chance.choices(words, k=60))}) for _ in range(120)]
    path = folder / f"{TEXT}.jsonl"
    path.write_text("\n".join(lines))
    shape = {"num_layers": 1, "width": 32}
    return [
        ImportCorpus(name=TEXT, path=str(path)),
        MakeSeed.model_validate({"name": SEED, "domains": [TEXT], "vocab_size": 300, "shape": shape}),
    ]


def training(name: str) -> TrainJoint:
    """One more training; only its name differs."""
    spec = {"name": name, "seed_model": SEED, "domains": [TEXT], "method": "dense", "training": TRAINING}
    return TrainJoint.model_validate(spec)


def weights_of(settings: Settings, job_id: str) -> str:
    """The SHA-256 of the weights that a training made; empty before it has ended."""
    with reading(settings) as session:
        artifact_id = session.scalar(select(Expert.artifact_id).where(Expert.job_id == job_id))
    if artifact_id is None:
        return ""
    files = sorted(get_storage(settings).path(artifact_id).rglob("*.safetensors"))
    assert files, "an expert has weights"
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
