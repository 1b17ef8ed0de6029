"""Models that are loaded by several threads at once are as complete as one alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor
from transformers import GPT2Config, PreTrainedModel

from engine.models.families import empty_model, load_weights


class Slow(Mapping[str, Tensor]):
    """Tensors whose first read waits for an event, at most for a while."""

    def __init__(self, tensors: Mapping[str, Tensor], may_go_on: threading.Event) -> None:
        self._tensors, self._may_go_on = tensors, may_go_on
        self.is_read = threading.Event()

    def __getitem__(self, name: str) -> Tensor:
        self.is_read.set()
        self._may_go_on.wait(2.0)
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def test_two_loads_at_once_leave_tied_weights_tied() -> None:
    tie_weights = PreTrainedModel.tie_weights
    config = GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=16, n_positions=8)
    tensors = {name: torch.zeros(one.shape) for name, one in empty_model(config).named_parameters()}
    ends = threading.Event(), threading.Event()
    first, second = (Slow(tensors, end) for end in ends)
    threads = [
        threading.Thread(target=load_weights, args=(Path("x"), config, one, torch.float32)) for one in (first, second)
    ]
    try:
        threads[0].start()
        first.is_read.wait(60.0)
        threads[1].start()
        second.is_read.wait(1.0)  # where both load at once, the first ends first
        ends[0].set()
        threads[0].join()
        ends[1].set()
        threads[1].join()
        assert PreTrainedModel.tie_weights is tie_weights
        names = dict(empty_model(config).named_parameters())
        assert "lm_head.weight" not in names
    finally:
        PreTrainedModel.tie_weights = tie_weights
