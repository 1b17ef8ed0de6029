"""Evaluations during a MoDE training: one pass over held-out text gives its loss and the experts the gates chose."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.config import Precision, TrainingConfig
from engine.events import Evaluated
from engine.methods.parts.parts_model import ActiveParts
from engine.methods.parts.training import TrainingData, train_active
from engine.text.blocks import EvalSample
from engine.training.data import PackedDomain
from tests.engine.methods.mode.backbones import VOCAB, mode_model

BLOCKS = 11


def packed(folder: Path, name: str) -> PackedDomain:
    folder.mkdir()
    drawn = np.random.default_rng(len(name))
    for split, length in (("train", 400), ("dev", 300)):
        np.save(folder / f"{split}.npy", drawn.integers(VOCAB, size=length).astype("<u2"))
        np.save(folder / f"{split}.starts.npy", np.zeros(1, dtype="<i8"))
    return PackedDomain(name, "both", folder)


@pytest.fixture
def training_data(tmp_path: Path) -> TrainingData:
    """Two domains to learn and one to retain, each looked at in more blocks than one batch of scores has."""
    law, code, verse = (packed(tmp_path / name, name) for name in ("law", "code", "verse"))
    return TrainingData(
        (law, code),
        (verse,),
        TrainingConfig(num_steps=2, block_size=16, evaluate_every=2, evaluation_blocks=BLOCKS, learning_rate=1e-3),
    )


@torch.no_grad()
def defined(active: ActiveParts, text: EvalSample) -> list[float]:
    """The mean weights over all tokens and blocks of layers, text by text, as they are defined."""
    weights = [
        active.model(torch.from_numpy(inputs), active.active)[1].double().mean(0)[:, 0] for inputs, _ in text.batches(1)
    ]
    return torch.cat(weights, 1).mean(1).tolist()  # type: ignore[no-any-return]


def evaluated(active: ActiveParts, training_data: TrainingData, folder: Path) -> list[Evaluated]:
    return [event for event in train_active(active, training_data, folder) if isinstance(event, Evaluated)]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_an_evaluation_reports_which_experts_the_gates_chose_on_every_domain(
    training_data: TrainingData, tmp_path: Path, precision: Precision
) -> None:
    training_data = replace(training_data, config=replace(training_data.config, precision=precision))
    active = ActiveParts(mode_model(["law", "code"]), ["law", "code"], "both")
    first, last = evaluated(active, training_data, tmp_path / "work")
    assert list(last.gates_by_domain) == list(last.loss_by_domain) == ["law", "code", "verse"]
    assert first.gates_by_domain != last.gates_by_domain
    for name, text in training_data.held_out().items():
        tolerance = 1e-2 if precision == "bf16" else 1e-6
        assert last.gates_by_domain[name] == pytest.approx(defined(active, text), abs=tolerance)
        assert sum(last.gates_by_domain[name]) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_what_is_retained_is_evaluated_in_the_precision_of_what_is_trained(
    training_data: TrainingData, tmp_path: Path, precision: Precision
) -> None:
    """The held-out text of a domain trained on, under the name of another, has the same loss and gates."""
    again = replace(training_data.domains[0], name="law again")
    training_data = replace(training_data, retained=(again,), config=replace(training_data.config, precision=precision))
    active = ActiveParts(mode_model(["law", "code"]), ["law", "code"], "both")
    for shown in evaluated(active, training_data, tmp_path / "work"):
        assert shown.loss_by_domain["law again"] == pytest.approx(shown.loss_by_domain["law"], rel=1e-6)
        assert shown.gates_by_domain["law again"] == pytest.approx(shown.gates_by_domain["law"], abs=1e-6)


def test_held_out_text_is_read_once(training_data: TrainingData, tmp_path: Path) -> None:
    active = ActiveParts(mode_model(["law", "code"]), ["law", "code"], "both")
    rows: list[int] = []
    active.lm.base_model.layers[0].register_forward_pre_hook(
        lambda _, given: rows.append(len(given[0])) if not torch.is_grad_enabled() else None
    )
    evaluations = evaluated(active, training_data, tmp_path / "work")
    assert sorted(rows) == sorted([BLOCKS, BLOCKS, 8, BLOCKS - 8] * len(evaluations))
