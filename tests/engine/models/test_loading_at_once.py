"""Models that are loaded by several threads at once are as complete as one alone."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel

from engine.models import families


def test_two_loads_at_once_leave_tied_weights_tied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PreTrainedModel, "tie_weights", tie_weights := PreTrainedModel.tie_weights)
    config = GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=16, n_positions=8)
    tensors = {name: torch.zeros(one.shape) for name, one in families.empty_model(config).named_parameters()}
    is_built = {"first": threading.Event(), "second": threading.Event()}

    class Slow(GPT2LMHeadModel):
        """The first of two models takes until the second is built as well, or a second; the second longer."""

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            name = threading.current_thread().name
            is_built[name].set()
            is_built["second"].wait(1.0)
            if name == "second":
                threads[0].join(5.0)

    monkeypatch.setattr(families, "_model_class", lambda _: Slow)
    arguments = (Path("x"), config, tensors, torch.float32)
    threads = [threading.Thread(target=families.load_weights, args=arguments, name=name) for name in is_built]
    threads[0].start()
    is_built["first"].wait(60.0)
    threads[1].start()
    for thread in threads:
        thread.join()
    assert PreTrainedModel.tie_weights is tie_weights
