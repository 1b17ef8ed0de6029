"""A mixture without an expert is the one that never loaded it; a model that was tampered with is found out (L7)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.analysis.removal import Identity, choose_blocks, compare_bits, write_distributions
from engine.errors import ScoresError
from engine.events import Progress
from engine.mixing.gate_type import build_gate
from engine.mixing.gates.posterior import PosteriorGateConfig
from engine.models.multi_expert import MultiExpertModel
from engine.text.blocks import Tokens

LEFT = ["law", "news", "verse"]
GATE = build_gate(PosteriorGateConfig(), [1, 2, 3])


@pytest.fixture
def never(model: MultiExpertModel, make_model: Callable[..., MultiExpertModel]) -> MultiExpertModel:
    """The model as it is when the second expert was never loaded."""
    result = make_model(LEFT[:1], experts_in=model.experts_in)
    for key in LEFT[1:]:
        result.add_expert(key, state=model.expert_state(key))
    return result


@pytest.fixture
def compared(
    model: MultiExpertModel, never: MultiExpertModel, make_tokens: Callable[..., Tokens], tmp_path: Path
) -> Callable[[], Identity]:
    """Compares the two on two texts of three and one and a half blocks."""

    def run() -> Identity:
        texts = [make_tokens(3, 49).array, make_tokens(4, 25).array]
        blocks = choose_blocks(texts, 16, len(LEFT), model.vocab_size)
        written = list(write_distributions(model, LEFT, GATE, blocks, tmp_path))
        *progress, identity = compare_bits(never, LEFT, GATE, blocks, tmp_path)
        assert len(written) == len(progress) == len(blocks)
        assert not list(tmp_path.iterdir())
        assert all(isinstance(one, Progress) for one in progress)
        assert isinstance(identity, Identity)
        return identity

    return run


def test_what_is_left_is_what_was_never_loaded(compared: Callable[[], Identity]) -> None:
    result = compared()
    assert result == Identity(48 + 24, (3 + 1) * (48 + 24) * 300, 0, 0, 0.0)
    assert result.holds


def test_a_model_that_remembers_the_expert_is_detected(
    model: MultiExpertModel, compared: Callable[[], Identity]
) -> None:
    with torch.no_grad():  # a ten-thousandth of the removed expert seeps into another one
        for name, tensor in model.expert_state("law").items():
            tensor.lerp_(model.expert_state("code")[name], 1e-4)
    result = compared()
    assert not result.holds
    assert result.num_different > 0
    assert result.largest_difference is not None
    assert result.largest_difference > 0


def test_one_bit_of_one_shared_number_is_seen(model: MultiExpertModel, compared: Callable[[], Identity]) -> None:
    with torch.no_grad():
        bias_or_norm = next(
            tensor for name, tensor in model.shared_state().items() if name.endswith("model.norm.weight")
        )
        bias_or_norm[0] = torch.nextafter(bias_or_norm[0], torch.tensor(2.0))
    assert not compared().holds


def test_numbers_that_are_none_are_no_finite_difference(
    model: MultiExpertModel, compared: Callable[[], Identity]
) -> None:
    with torch.no_grad():
        next(iter(model.expert_state("news").values())).fill_(torch.nan)
    result = compared()
    assert (result.holds, result.largest_difference) == (False, None)


def test_two_models_that_say_nothing_are_the_same_and_prove_nothing(
    model: MultiExpertModel, never: MultiExpertModel, compared: Callable[[], Identity]
) -> None:
    with torch.no_grad():
        for one in (model, never):
            next(iter(one.shared_state().values())).fill_(torch.nan)
    result = compared()
    assert (result.num_different, result.num_not_finite) == (0, result.num_numbers)
    assert not result.holds


def test_nothing_compared_proves_nothing() -> None:
    with pytest.raises(ScoresError, match="fewer than 2 tokens"):
        choose_blocks([np.zeros(1, dtype=np.uint16)], 16, 3, 300)
    assert not Identity(0, 0, 0, 0, 0.0).holds
