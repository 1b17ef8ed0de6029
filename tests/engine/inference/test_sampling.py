"""What sampling does to log-probabilities is what transformers' processors do to them; candidates are the best."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from transformers import LogitsProcessorList
from transformers.generation import logits_process as theirs

from engine.analysis.extraction import MixtureSampler, Pieces, generate_continuations
from engine.config import SamplingConfig
from engine.errors import EngineError
from engine.events import Done, Token
from engine.inference.generate import generate, read_prompt, read_text
from engine.inference.sampling import (
    make_generator,
    penalize,
    sample_token,
    sampling_distribution,
)
from engine.mixing.gate_type import build_gate
from engine.mixing.gates.fixed import FixedGateConfig
from engine.mixing.gates.posterior import PosteriorGateConfig
from engine.models.multi_expert import MultiExpertModel
from engine.text.tokenizer import Tokenizer, train_tokenizer
from tests.engine.conftest import model_with

VOCAB = 50
IDS, NUM_PROMPT = [3, 4, 3, 7, 7, 9], 3


def logprobs(seed: int = 0) -> torch.Tensor:
    return (3 * torch.randn(VOCAB, generator=make_generator(seed))).log_softmax(-1)


PROCESSORS = {
    "top_k": (SamplingConfig(top_k=5), [theirs.TopKLogitsWarper(5)]),
    "top_k beyond": (SamplingConfig(top_k=500), [theirs.TopKLogitsWarper(500)]),
    "top_p": (SamplingConfig(top_p=0.8), [theirs.TopPLogitsWarper(0.8)]),
    "min_p": (SamplingConfig(min_p=0.1), [theirs.MinPLogitsWarper(0.1)]),
    "repetition": (SamplingConfig(repetition_penalty=1.7), [theirs.RepetitionPenaltyLogitsProcessor(1.7)]),
    "praise": (SamplingConfig(repetition_penalty=0.6), [theirs.RepetitionPenaltyLogitsProcessor(0.6)]),
    "bias": (
        SamplingConfig(logit_bias={3: 5.0, 8: -100.0}),
        [theirs.SequenceBiasLogitsProcessor({(3,): 5.0, (8,): -100.0})],
    ),
    "all": (
        SamplingConfig(
            temperature=0.7, top_k=20, top_p=0.9, min_p=0.05, repetition_penalty=1.3, logit_bias={3: 2.0, 11: -1.0}
        ),
        [
            theirs.SequenceBiasLogitsProcessor({(3,): 2.0, (11,): -1.0}),
            theirs.RepetitionPenaltyLogitsProcessor(1.3),
            theirs.TemperatureLogitsWarper(0.7),
            theirs.TopKLogitsWarper(20),
            theirs.TopPLogitsWarper(0.9),
            theirs.MinPLogitsWarper(0.05),
        ],
    ),
}


@pytest.mark.parametrize(("sampling", "processors"), PROCESSORS.values(), ids=PROCESSORS)
def test_the_distribution_is_that_of_transformers(sampling: SamplingConfig, processors: list[object]) -> None:
    for seed in range(20):
        scores = LogitsProcessorList(processors)(torch.tensor([IDS]), logprobs(seed)[None])
        ours = sampling_distribution(logprobs(seed), sampling, IDS, NUM_PROMPT)
        torch.testing.assert_close(ours, scores.softmax(-1)[0], atol=1e-6, rtol=1e-5)
        assert torch.equal(ours > 0, scores[0] > -torch.inf) or "bias" in str(sampling)


def test_all_but_the_repetition_penalty_do_to_an_expert_what_they_do_to_its_logits() -> None:
    """Experts are mixed as probabilities, and a sum moves logits and log-probabilities alike, a factor does not."""
    logits = 3 * torch.randn(VOCAB, generator=make_generator(0)) + 5
    for name in PROCESSORS.keys() - {"all"}:  # whose other options hide it
        sampling, processors = PROCESSORS[name]
        theirs_V = LogitsProcessorList(processors)(torch.tensor([IDS]), logits[None]).softmax(-1)[0]
        ours_V = sampling_distribution(logits.log_softmax(-1), sampling, IDS, NUM_PROMPT)
        is_same = torch.allclose(ours_V, theirs_V, atol=1e-6, rtol=1e-4)
        assert is_same is (sampling.repetition_penalty == 1), name


def test_presence_and_frequency_count_only_the_answer() -> None:
    sampling = SamplingConfig(presence_penalty=0.5, frequency_penalty=0.25)
    lost = logprobs() - penalize(logprobs(), sampling, IDS, NUM_PROMPT)
    expected = torch.zeros(VOCAB)
    expected[7], expected[9] = 0.5 + 2 * 0.25, 0.5 + 0.25  # as in OpenAI's documentation
    torch.testing.assert_close(lost, expected, atol=1e-6, rtol=0)


def test_penalties_hold_at_temperature_0() -> None:
    best, second = logprobs().topk(2).indices.tolist()
    greedy = SamplingConfig(temperature=0, logit_bias={best: -100.0})
    assert sample_token(logprobs(), greedy, make_generator(1)) == second
    flat = (logprobs() / 10).log_softmax(-1)
    again = SamplingConfig(temperature=0, repetition_penalty=2.0)
    assert sample_token(flat, again, make_generator(1), [best], 1) == second


def test_without_an_option_not_a_bit_changes() -> None:
    plain = sampling_distribution(logprobs(), SamplingConfig(temperature=0.8))
    assert torch.equal(plain, (logprobs() / 0.8).softmax(-1))
    assert torch.equal(sampling_distribution(logprobs(), SamplingConfig(temperature=0.8), IDS, NUM_PROMPT), plain)


def test_tokens_outside_the_best_are_never_drawn() -> None:
    generator, sampling = make_generator(1), SamplingConfig(top_k=3)
    drawn = Counter(sample_token(logprobs(), sampling, generator) for _ in range(200))
    assert set(drawn) == set(logprobs().topk(3).indices.tolist())


@pytest.mark.parametrize("option", ["top_k", "min_p", "repetition_penalty", "num_candidates"])
def test_an_impossible_option_is_refused_by_name(option: str) -> None:
    with pytest.raises(EngineError, match=option):
        SamplingConfig(**{option: -1})


@pytest.fixture
def answer(model: MultiExpertModel, tokenizer: Tokenizer) -> Callable[[SamplingConfig], list[Token | Done]]:
    """The answer of a mixture under some sampling."""
    gate = build_gate(FixedGateConfig(), [1.0] * len(model.keys))
    return lambda sampling: list(generate(model, model.keys, gate, tokenizer, "the court", sampling))


Answer = Callable[[SamplingConfig], list[Token | Done]]


def test_candidates_are_the_most_probable_tokens_of_the_mixture(answer: Answer) -> None:
    tokens = [one for one in answer(SamplingConfig(6, temperature=0, num_candidates=4)) if isinstance(one, Token)]
    assert tokens
    for token in tokens:
        assert len(token.candidates) == 4
        assert token.candidates[0] == (token.id, token.text, token.logprob)
        assert [one.logprob for one in token.candidates] == sorted(one.logprob for one in token.candidates)[::-1]
    plain = answer(SamplingConfig(6, temperature=0))
    assert [one.id for one in plain if isinstance(one, Token)] == [token.id for token in tokens]


def test_an_echo_has_them_for_every_token_but_the_first(model: MultiExpertModel, tokenizer: Tokenizer) -> None:
    gate = build_gate(FixedGateConfig(), [1.0] * len(model.keys))
    echo = read_prompt(model, model.keys, gate, tokenizer, "the court of the king", 3)
    assert len(echo.candidates) == len(echo.tokens)
    assert echo.candidates[0] == ()
    for best, candidates in zip(echo.best[1:], echo.candidates[1:], strict=True):
        assert best is not None
        assert best[1] == pytest.approx(candidates[0].logprob)
        assert len({one.id for one in candidates}) == 3


def test_an_answer_goes_on_behind_the_end_of_a_document_where_it_is_to_be_ignored(
    answer: Answer, tokenizer: Tokenizer
) -> None:
    ends = dict.fromkeys(tokenizer.stop_ids, 100.0)
    assert [type(one) for one in answer(SamplingConfig(3, temperature=0, logit_bias=ends))] == [Done]
    going_on = SamplingConfig(3, temperature=0, logit_bias=ends, ignore_eos=True)
    assert [type(one) for one in answer(going_on)] == [Token, Token, Token, Done]


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
    sampler, sampling = MixtureSampler(loud, KEYS, GATE), SamplingConfig(temperature=1.2, seed=1)
    *_, drawn = generate_continuations(sampler, pieces, sampling, unused)
    assert isinstance(drawn, torch.Tensor)
    assert not set(drawn.flatten().tolist()) & set(unused)


def test_unused_rows_are_those_behind_the_last_token(small: Tokenizer) -> None:
    assert small.unused_rows(small.vocab_size) == ()
    assert small.unused_rows(300) == tuple(range(small.vocab_size, 300))
