"""Rows that pad a model's vocabulary to a round number are never sampled, whatever they predict."""

from __future__ import annotations

import pytest
import torch

from engine.analysis.extraction import MixtureSampler, Pieces, generate_continuations
from engine.config import SamplingConfig
from engine.events import Token
from engine.inference.generate import generate
from engine.inference.read_text import read_prompt, read_text
from engine.mixing.gate_type import build_gate
from engine.mixing.gates.posterior import PosteriorGateConfig
from engine.models.multi_expert import MultiExpertModel
from engine.text.tokenizer import Tokenizer, train_tokenizer
from tests.engine.conftest import model_with

KEYS = ["a", "b"]
SMALL = 280  # entries of 300 rows


@pytest.fixture(scope="module")
def small() -> Tokenizer:
    tokenizer = train_tokenizer(["the court held that the statute does not apply " * 9], SMALL)
    assert tokenizer.vocab_size <= SMALL
    return tokenizer


@pytest.fixture(scope="module")
def loud(small: Tokenizer) -> MultiExpertModel:
    """A model whose unused rows win nearly always."""
    model = model_with(KEYS)
    with torch.no_grad():
        model.lm.lm_head.weight[list(small.unused_rows(300))] *= 60
    return model


GATE = build_gate(PosteriorGateConfig(), [1.0, 1.0])


@pytest.mark.parametrize("keys", [KEYS[:1], KEYS])
@pytest.mark.parametrize(
    "sampling",
    [
        SamplingConfig(40, temperature=0, num_candidates=5),
        SamplingConfig(40, temperature=1.5, seed=3, num_candidates=5),
        SamplingConfig(40, temperature=1.5, seed=3, top_k=3, min_p=0.2, frequency_penalty=1.0, num_candidates=20),
        SamplingConfig(40, temperature=1.0, seed=3, speculate=True, logit_bias={299: 100.0}, num_candidates=5),
    ],
)
def test_no_answer_has_a_token_that_the_tokenizer_does_not_have(
    loud: MultiExpertModel, small: Tokenizer, keys: list[str], sampling: SamplingConfig
) -> None:
    gate = build_gate(PosteriorGateConfig(), [1.0] * len(keys))
    events = list(generate(loud, keys, gate, small, "the court", sampling, stop_ids=()))
    tokens = [event for event in events if isinstance(event, Token)]
    unused = set(small.unused_rows(300))
    assert len(tokens) == 40
    assert not {token.id for token in tokens} & unused
    assert not {one.id for token in tokens for one in token.candidates} & unused


def test_a_text_that_is_read_shows_only_tokens_as_better_ones(loud: MultiExpertModel, small: Tokenizer) -> None:
    echo = read_prompt(loud, KEYS, GATE, small, "the court held", num_candidates=5)
    assert not {one.id for candidates in echo.candidates for one in candidates} & set(small.unused_rows(300))
    assert all(text for text, _ in read_text(loud, KEYS, GATE, small, "the court held")["best"])


def test_a_log_probability_counts_the_unused_rows_as_transformers_does(
    loud: MultiExpertModel, small: Tokenizer
) -> None:
    read = read_text(loud, KEYS[:1], build_gate(PosteriorGateConfig(), [1.0]), small, "the court")
    ids = torch.tensor([[small.bos_id, *small.encode("the court")]])
    from engine.models.rows import Rows

    with torch.no_grad():
        expected = loud(ids, Rows.all_to("a", 1)).log_softmax(-1)[0, :-1].gather(-1, ids[0, 1:, None])[:, 0]
    torch.testing.assert_close(torch.tensor(read["logprobs"]), expected, atol=1e-4, rtol=1e-4)


def test_continuations_of_training_text_have_none(loud: MultiExpertModel, small: Tokenizer) -> None:
    pieces = Pieces(torch.tensor([[0, 5, 6]]), torch.zeros(1, 12, dtype=torch.long), 1)
    unused = small.unused_rows(300)
    *_, drawn = generate_continuations(
        MixtureSampler(loud, KEYS, GATE), pieces, SamplingConfig(temperature=1.2, seed=1), unused
    )
    assert isinstance(drawn, torch.Tensor)
    assert not set(drawn.flatten().tolist()) & set(unused)


def test_unused_rows_are_those_behind_the_last_token(small: Tokenizer) -> None:
    assert small.unused_rows(small.vocab_size) == ()
    assert small.unused_rows(300) == tuple(range(small.vocab_size, 300))
