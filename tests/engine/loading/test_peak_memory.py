"""Loading needs at most 1.15 times the bytes of the parameters, as the kernel counts a process's memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks import loading
from benchmarks.harness.benchmark import in_own_process
from engine.config import ModelConfig

pytestmark = pytest.mark.slow

SHAPE = ModelConfig(num_layers=3, width=384, num_heads=6, ffn_width=1536)
TINY = ModelConfig(num_layers=3, width=64, num_heads=2, ffn_width=128)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    loading.make(root, SHAPE, 32_000, torch.float32)
    loading.make(root / "tiny", TINY, 300, torch.float32)
    return root


@pytest.mark.parametrize("what", ["seed", "demix", "lora", "mode"])
def test_loading_peaks_at_little_more_than_the_parameters(models: Path, what: str) -> None:
    ratio, num_bytes = in_own_process(loading.measure, what, models)
    assert num_bytes > 70e6  # so that a megabyte more or less is no part of the answer
    assert 0.9 < ratio <= loading.GOAL
