"""A model that knows nothing of a text has a perplexity all the same."""

from __future__ import annotations

import math

import pytest
import torch

from engine.analysis.inference_modes import oracle_perplexity
from engine.inference.scores import mixed_perplexity, perplexity
from engine.mixing.gate_type import build_gate
from engine.mixing.gates.fixed import FixedGateConfig
from engine.statistics.perplexity import MOST_NATS, perplexity_of


def test_a_perplexity_is_the_exponential_of_the_nats_per_token() -> None:
    assert perplexity_of(math.log(7)) == pytest.approx(7)


def test_a_diverged_model_has_a_perplexity_that_a_float_can_hold() -> None:
    scores_EX = torch.full((2, 8), -5000.0)
    gate = build_gate(FixedGateConfig(), [1.0, 1.0])

    result = [perplexity(scores_EX[0]), mixed_perplexity(gate, scores_EX, 4), oracle_perplexity(scores_EX, 4)]

    assert result == [math.exp(MOST_NATS)] * 3
