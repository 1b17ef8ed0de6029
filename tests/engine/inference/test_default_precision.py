"""Streams keep their numbers while another thread loads a model in bf16: transformers changes torch's default then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from engine.config import SamplingConfig
from engine.inference.ensemble import Ensemble, Group
from engine.inference.generate import generate
from engine.inference.read_text import read_prompt, read_text
from engine.inference.shared_passes import SharedPasses
from engine.mixing.base import FixedGate
from engine.mixing.posterior import PosteriorGate, UpdatingGate
from engine.models.multi_expert import MultiExpertModel
from engine.text.tokenizer import Tokenizer
from tests.engine.conftest import KEYS

IDS = [3, 5, 7, 11, 13]
SAMPLING = SamplingConfig(max_tokens=5, seed=1, logit_bias={7: 0.123456789}, presence_penalty=0.3, speculate=True)


@contextmanager
def bf16_by_default() -> Iterator[None]:
    """As it is while transformers builds a model in bf16, but for longer."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("gate", [FixedGate, PosteriorGate, UpdatingGate])
@pytest.mark.parametrize("is_shared", [False, True])
def test_a_stream_does_not_depend_on_torchs_default_precision(
    make_model: Callable[..., MultiExpertModel], tokenizer: Tokenizer, gate: type[Any], is_shared: bool
) -> None:
    model, passes = make_model(KEYS), SharedPasses()
    view = passes.view(model) if is_shared else model

    def answers() -> list[Any]:
        models, weights = Ensemble((Group(tuple(KEYS), lambda: view, 64, model.vocab_size),)), gate([1, 2, 3, 4])
        written = list(generate(models, KEYS, weights, tokenizer, IDS, SAMPLING, stop_ids=()))
        scored = read_prompt(models, KEYS, weights, tokenizer, IDS, 2)
        return [written, scored, read_text(models, KEYS, weights, tokenizer, "the court held")]

    expected = answers()
    with bf16_by_default():
        assert answers() == expected
