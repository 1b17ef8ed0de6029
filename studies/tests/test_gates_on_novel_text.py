"""The comparison of gates on novel text, `benchmarks/gates_on_novel_text.py`, on invented scores."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gates_on_novel_text.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    specification = importlib.util.spec_from_file_location("gates_on_novel_text", SCRIPT)
    assert specification
    assert specification.loader
    module = importlib.util.module_from_spec(specification)
    sys.modules["gates_on_novel_text"] = module
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def compared(script: ModuleType) -> dict[str, Any]:
    return script.compare(script.invented(num_experts=3, num_novel=2, num_blocks=8, block_size=32), num_steps=60)


def test_every_gate_is_compared_on_both_kinds_of_text_with_an_interval(compared: dict[str, Any]) -> None:
    gates = ["prefix", "last_token", "average", "one decay", "calibrated", "stacking", "learned, linear"]
    for role in ("training", "novel"):
        rows = {row["gate"]: row for row in compared[role]}
        assert list(rows) == [*gates, "learned, 16 units", "cluster-posterior"]
        assert rows["prefix"]["change_percent"] == 0
        assert all(row["low"] <= row["change_percent"] <= row["high"] for row in rows.values())
        assert rows["average"]["low"] < rows["average"]["high"]


def test_what_is_fitted_gains_where_the_best_expert_changes(compared: dict[str, Any]) -> None:
    rows = {row["gate"]: row for row in compared["novel"]}
    assert rows["calibrated"]["high"] < 0
    assert rows["learned, linear"]["high"] < 0


def test_test_text_fits_nothing(script: ModuleType, compared: dict[str, Any]) -> None:
    scores = script.invented(num_experts=3, num_novel=2, num_blocks=8, block_size=32)
    for text in (*scores.training, *scores.novel):
        text.scores_EX.copy_(torch.flip(text.scores_EX, [0]) - 1)
    assert script.compare(scores, num_steps=60)["settings"] == compared["settings"]


def test_features_of_a_token_do_not_see_it(script: ModuleType) -> None:
    blocks_ENT = -torch.rand(2, 1, 6)
    changed = blocks_ENT.clone()
    changed[..., 3] -= 5
    first, second = script.features(blocks_ENT), script.features(changed)
    assert torch.equal(first[:, :, :4], second[:, :, :4])
    assert not torch.equal(first[:, :, 4], second[:, :, 4])
