"""A small seed model, text of three domains, and the training of one process that others are compared with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.config import ModelConfig
from engine.events import Event
from engine.models.families import fresh_model
from engine.training.data import PackedDomain
from tests.engine.training.launched import train_separately


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("a seed")  # with a space
    shape = ModelConfig(num_layers=2, width=32, num_heads=2, ffn_width=64, max_positions=64)
    fresh_model(shape, 300, seed=7).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def domains(tmp_path_factory: pytest.TempPathFactory) -> list[PackedDomain]:
    """Three domains of different tokens, packed."""
    result = []
    for number, name in enumerate(["law", "code", "news"]):
        folder = tmp_path_factory.mktemp(name)
        for split, length in (("train", 400), ("dev", 100)):
            ids = np.random.default_rng(number).integers(1 + 90 * number, 91 + 90 * number, length)
            np.save(folder / f"{split}.npy", ids.astype("<u2"))
            np.save(folder / f"{split}.starts.npy", np.zeros(1, dtype="<i8"))
        result.append(PackedDomain(name, f"expert-{name}", folder))
    return result


@pytest.fixture(scope="module")
def reference(seed, domains, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Event]]:
    """The folder and the events of the same training in this process."""
    folder = tmp_path_factory.mktemp("one")
    return folder, train_separately(seed, domains, folder)
