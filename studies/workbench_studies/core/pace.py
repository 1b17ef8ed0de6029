"""How fast this machine trains and scores a model of some shape, measured in a few seconds."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.config import ModelConfig
from engine.device import choose_device, python_command, python_environment

_SECONDS = 1.0  # of each measurement, or one update where that takes longer
_MOST_TOKENS = 2048  # of one update here


@dataclass(frozen=True)
class Pace:
    """Tokens per second of computing (on a CPU, of its time), seconds to start a job, and the model's parameters."""

    trained: float
    scored: float
    start_seconds: float
    num_parameters: int
    device: str


def measure_pace(config: ModelConfig, vocab_size: int, block_size: int, device: str = "auto") -> Pace:
    """Trains and scores a fresh model of this shape on random tokens for some seconds."""
    import torch

    from engine.models.families import fresh_model

    place = choose_device(device)
    model = fresh_model(config, vocab_size).to(place)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)
    tokens_BT = torch.randint(vocab_size, (max(1, _MOST_TOKENS // block_size), block_size), device=place)

    def train() -> None:
        model(input_ids=tokens_BT, labels=tokens_BT).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    @torch.no_grad()
    def score() -> None:
        model(input_ids=tokens_BT, labels=tokens_BT).loss.item()

    clock = time.process_time if place.type == "cpu" else time.perf_counter
    rates = [tokens_BT.numel() / _seconds(work, clock) for work in (train, score)]
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    return Pace(rates[0], rates[1], _start_seconds(), num_parameters, str(place))


def _seconds(work: Callable[[], Any], clock: Callable[[], float]) -> float:
    """The mean time of one call, without the first, which prepares memory."""
    work()
    began, calls = clock(), 0
    while not calls or clock() - began < _SECONDS:
        work()
        calls += 1
    return (clock() - began) / calls


def _start_seconds() -> float:
    """The processor's time that a fresh process takes to load the libraries, as every job does."""
    import resource

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        python_command("transformers.models.llama.modeling_llama"),
        env={**os.environ, **python_environment()},
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
