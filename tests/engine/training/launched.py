"""Trainings on several processes, for tests of what launches them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil

from engine.config import TrainingConfig
from engine.events import Event, Step
from engine.methods.multi_expert_files import new_placement
from engine.models.families import load_model
from engine.models.multi_expert import MultiExpertModel
from engine.training.checkpoint import state_at
from engine.training.data import PackedDomain
from engine.training.loop import train

CONFIG = TrainingConfig(
    num_steps=10,
    block_size=16,
    sequences_per_domain=2,
    learning_rate=3e-3,
    checkpoint_every=6,
    evaluate_every=5,
    evaluation_blocks=2,
    seed=1,
)
FOR_EVER = replace(CONFIG, num_steps=1_000_000, checkpoint_every=1_000_000, evaluate_every=1_000_000)


def processes(folder: Path) -> list[psutil.Process]:
    """Living processes of a training in this folder: torchrun's and the ranks."""
    result = []
    for process in psutil.process_iter(["cmdline", "status"]):
        command = " ".join(process.info["cmdline"] or [])
        if str(folder) in command and process.info["status"] != psutil.STATUS_ZOMBIE:
            result.append(process)
    return result


def eventually(holds: Callable[[], object], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)


def train_separately(seed: Path, domains: list[PackedDomain], folder: Path) -> list[Event]:
    model = MultiExpertModel(load_model(seed), [domain.expert for domain in domains], new_placement())
    return list(train(model, [domain.open() for domain in domains], CONFIG, folder))


def assert_same_weights(folder: Path, other: Path) -> None:
    ours, theirs = (state_at(one, 10) for one in (folder, other))
    names = [name for name in ours if name.startswith("parameters/")]
    assert ours.keys() == theirs.keys()
    assert names
    assert all(float((ours[n] - theirs[n]).norm()) <= 5e-5 * float(theirs[n].norm()) for n in names)


def up_to(events: Iterator[Event], step: int) -> list[Event]:
    """Events up to this step; the iterator stays open."""
    seen = []
    for event in events:
        seen.append(event)
        if isinstance(event, Step) and event.step == step:
            break
    return seen


def losses(events: list[Event]) -> list[float]:
    return [event.loss for event in events if isinstance(event, Step)]
