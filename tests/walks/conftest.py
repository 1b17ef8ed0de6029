"""Three small domains of plainly different text, and a home in which a DEMix model was trained on them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from engine.errors import Problem
from jobs.submit import run_now
from workbench.cards import JobCard
from workbench.database import reading
from workbench.services import jobs

Do = Callable[[dict[str, Any]], JobCard]
WORDS = {
    "court": "the court held that this statute applies and the appeal is dismissed with costs judge law",
    "kitchen": "mix flour sugar butter then bake in a hot oven until golden serve warm cream salt",
    "sea": "waves broke over the grey rocks as gulls cried above the harbour and ships sailed tide",
}
SHAPE = {"num_layers": 2, "width": 32, "num_heads": 2, "ffn_width": 64, "max_positions": 128}
TRAINING = {
    "num_steps": 30, "block_size": 32, "learning_rate": 5e-3, "clip": 1.0, "checkpoint_every": 10, "evaluate_every": 15,
}  # fmt: skip


def write_domain(folder: Path, name: str) -> Path:
    """60 documents of 60 words each as JSON lines, the same each time."""
    draw = random.Random(name)
    path = folder / f"{name}.jsonl"
    lines = [json.dumps({"text": " ".join(draw.choices(WORDS[name].split(), k=60)) + "."}) for _ in range(60)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def work(spec: dict[str, Any]) -> JobCard:
    """Runs a job in this process to its end; the card it leaves."""
    job_id, events = run_now(spec)
    with suppress(Problem):  # the card has the words
        for _ in events:
            pass
    with reading() as session:
        return jobs.get_job(session, job_id)


@pytest.fixture
def corpora(tmp_path: Path) -> dict[str, Path]:
    return {name: write_domain(tmp_path, name) for name in WORDS}


@pytest.fixture
def do(home: Path):
    """The function that runs a spec to its end in a fresh home."""
    return work


@pytest.fixture
def trained(do, corpora: dict[str, Path]):
    """A home with the mixture “small” of a court and a kitchen expert; the sea is imported and untrained."""
    for name, path in corpora.items():
        do({"kind": "import-corpus", "name": name, "path": str(path)})
    do({"kind": "make-seed", "name": "seed", "domains": ["court", "kitchen"], "vocab_size": 320, "shape": SHAPE})
    do(
        {
            "kind": "train-demix",
            "name": "small",
            "seed_model": "seed",
            "domains": ["court", "kitchen"],
            "training": TRAINING,
        }
    )
    return do
