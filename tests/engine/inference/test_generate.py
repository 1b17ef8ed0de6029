"""Generation is the scorer's distribution, drawn one token at a time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from engine.config import SamplingConfig
from engine.errors import MixtureError
from engine.events import Done, Token
from engine.inference.cancellation import CancelledError, cancel_scope
from engine.inference.ensemble import Ensemble, Group
from engine.inference.generate import generate, read_prompt, read_text
from engine.inference.mixing import Mixing
from engine.inference.sampling import StopPhrases, make_generator, sample_token
from engine.inference.shared_passes import SharedPasses
from engine.mixing.base import FixedGate, mix
from engine.mixing.gate_type import build_gate
from engine.mixing.gates.posterior import PosteriorGateConfig
from engine.mixing.posterior import PosteriorGate, UpdatingGate
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows
from engine.text.tokenizer import Tokenizer
from tests.engine.conftest import KEYS
from tests.engine.tokenizer_shapes import llama_like

PROMPT = "the court held"
GREEDY = SamplingConfig(max_tokens=12, temperature=0)


def say(model, keys, tokenizer, weights=None, sampling=GREEDY, stop=(), prompt=PROMPT, gate=None) -> list[Token | Done]:
    chosen = build_gate(gate or PosteriorGateConfig(), weights or [1.0] * len(keys))
    return list(generate(model, keys, chosen, tokenizer, prompt, sampling, stop))


def logprobs(events: list[Token | Done]) -> list[float]:
    return [event.logprob for event in events if isinstance(event, Token)]


def test_cached_decoding_is_plain_decoding(model: MultiExpertModel, tokenizer: Tokenizer) -> None:  # L18
    ids = [tokenizer.bos_id, *tokenizer.encode(PROMPT), 17, 42, 99]
    mixing = Mixing(model, model.keys, build_gate(PosteriorGateConfig(), [1.0] * 4))
    for token in ids:  # one at a time, through the caches
        list(mixing.read([token]))
    weights_E, cached_V = mixing.distribution()
    with torch.no_grad():
        logprobs_ETV = model(torch.tensor([ids] * 4), Rows.one_each(model.keys)).log_softmax(-1)
    stream = build_gate(PosteriorGateConfig(), [1.0] * 4).start()
    for position, token in enumerate(ids[1:]):
        stream.observe(logprobs_ETV[:, position, token], token)
    torch.testing.assert_close(weights_E, stream.log_weights().exp(), atol=1e-5, rtol=0)
    torch.testing.assert_close(cached_V, mix(stream.log_weights(), logprobs_ETV[:, -1]), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("by_feeding", [True, False])
def test_tokens_before_the_evidence_begins_are_read_but_weigh_nothing(model, tokenizer, by_feeding: bool) -> None:
    ids, begins = [tokenizer.bos_id, *tokenizer.encode(PROMPT), 17, 42, 99], 4
    mixing = Mixing(model, model.keys, build_gate(PosteriorGateConfig(), [1.0] * 4), begins)
    if by_feeding:
        mixing.feed(ids)
    else:
        list(mixing.read(ids))
    with torch.no_grad():
        logprobs_ETV = model(torch.tensor([ids] * 4), Rows.one_each(model.keys)).double().log_softmax(-1)
    own_E = sum(logprobs_ETV[:, number - 1, ids[number]] for number in range(begins, len(ids)))
    weights_E, cached_V = mixing.distribution()
    torch.testing.assert_close(weights_E, own_E.softmax(0), atol=1e-5, rtol=0)
    expected_V = mix(own_E.log_softmax(0), logprobs_ETV[:, -1])
    torch.testing.assert_close(cached_V.double(), expected_V.double(), atol=1e-5, rtol=1e-5)


def test_what_generation_says_of_its_tokens_is_what_the_scorer_says(
    model: MultiExpertModel, tokenizer: Tokenizer
) -> None:  # L13
    events = say(model, model.keys, tokenizer, sampling=SamplingConfig(max_tokens=8, seed=3))
    text_ids = [event.id for event in events if isinstance(event, Token)]
    ids = [tokenizer.bos_id, *tokenizer.encode(PROMPT), *text_ids]
    mixing = Mixing(model, model.keys, build_gate(PosteriorGateConfig(), [1.0] * 4))
    scored = [float(mix(log_weights_E, observed_E)) for log_weights_E, observed_E in mixing.read(ids)]
    assert logprobs(events) == pytest.approx(scored[-len(text_ids) :], abs=1e-5)


def test_weights_of_every_token_are_named_and_sum_to_one(model: MultiExpertModel, tokenizer: Tokenizer) -> None:  # L5
    for event in say(model, model.keys, tokenizer)[:-1]:
        assert list(event.weights) == model.keys
        assert math.fsum(event.weights.values()) == pytest.approx(1, abs=1e-6)


def test_the_same_seed_says_the_same_and_others_do_not_disturb_it(
    model: MultiExpertModel, tokenizer: Tokenizer
) -> None:
    sampling = SamplingConfig(max_tokens=10, seed=5)
    by_itself = say(model, model.keys, tokenizer, sampling=sampling)
    gate = build_gate(PosteriorGateConfig(), [1.0] * 4)
    one = generate(model, model.keys, gate, tokenizer, PROMPT, sampling)
    other = generate(
        model,
        ["verse", "law"],
        build_gate(PosteriorGateConfig(), [1, 3]),
        tokenizer,
        "def",
        SamplingConfig(max_tokens=10),
    )
    together = []
    for event in one:
        together.append(event)
        next(other, None)
    assert together == by_itself


def test_drawing_follows_the_distribution() -> None:
    logprobs_V = torch.tensor([0.6, 0.3, 0.1]).log()
    generator = torch.Generator().manual_seed(0)
    counts = Counter(sample_token(logprobs_V, SamplingConfig(), generator) for _ in range(3000))
    assert [counts[i] / 3000 for i in range(3)] == pytest.approx([0.6, 0.3, 0.1], abs=0.03)


def test_a_prompt_longer_than_the_context_is_refused(model: MultiExpertModel, tokenizer: Tokenizer) -> None:
    with pytest.raises(
        MixtureError, match=f"length is {model.max_positions} tokens, at least 1 of them for the answer"
    ):
        say(model, ["law"], tokenizer, prompt="zq" * 100)


def test_generation_ends_where_the_context_ends(model: MultiExpertModel, tokenizer: Tokenizer) -> None:
    events = say(model, ["law"], tokenizer, sampling=SamplingConfig(max_tokens=1000, seed=1))
    assert isinstance(events[-1], Done)
    assert events[-1].num_prompt_tokens + events[-1].num_tokens <= model.max_positions


def test_a_document_that_ends_stops_the_generation(model: MultiExpertModel, tokenizer: Tokenizer) -> None:
    with torch.no_grad():
        model.lm.get_output_embeddings().weight[tokenizer.bos_id] = (
            50 * model.lm.get_output_embeddings().weight.sum(0).sign()
        )
    for seed in range(50):
        done = say(model, ["law"], tokenizer, sampling=SamplingConfig(max_tokens=5, seed=seed))[-1]
        if done.reason == "stop":
            return
    pytest.fail("the end of document was never drawn")


LLAMA = Tokenizer(llama_like(), 1, eos_ids=(2, 260))


def scripted(monkeypatch: pytest.MonkeyPatch, ids: list[int]) -> None:
    """Makes the models say these tokens."""
    drawn = iter(ids)
    monkeypatch.setattr("engine.inference.generate.sample_token", lambda *_: next(drawn))


def test_prompt_and_completion_are_the_text_of_all_tokens(make_model, monkeypatch) -> None:
    scripted(monkeypatch, LLAMA.encode("ab ab 😀"))
    *message, done = say(make_model(["law"]), ["law"], LLAMA, prompt="ab", sampling=SamplingConfig(max_tokens=7))
    assert message[0].text == " ab"
    ids = LLAMA.as_prompt(LLAMA.encode("ab")) + [event.id for event in message]
    assert "ab" + "".join(event.text for event in [*message, done]) == LLAMA.decode(ids) == "ab ab ab 😀"


@pytest.mark.parametrize("end", [1, 2, 260])
def test_any_end_of_a_text_stops_the_generation_and_is_not_shown(
    model: MultiExpertModel, end: int, monkeypatch
) -> None:
    word = LLAMA.encode("ab")
    scripted(monkeypatch, [*word, end, *word])
    token, done = say(model, model.keys, LLAMA, prompt="ab")
    assert (token.text, done) == (" ab", Done("stop", 2, 1))


def test_the_caller_may_set_what_ends_a_text(make_model, monkeypatch) -> None:
    scripted(monkeypatch, [2, 260, 7])
    gate = build_gate(PosteriorGateConfig(), [1.0])
    events = generate(make_model(["law"]), ["law"], gate, LLAMA, "ab", SamplingConfig(max_tokens=5), stop_ids={7})
    assert list(events)[-1] == Done("stop", 2, 2)


def test_a_model_without_a_bos_token_reads_only_the_prompt(make_model, monkeypatch) -> None:
    bare, read, model = Tokenizer(llama_like(), 2, prefix=()), [], make_model(["law"])
    feed = Mixing.feed
    monkeypatch.setattr(Mixing, "feed", lambda self, ids: (read.append(list(ids)), feed(self, ids))[1])
    for prompt, ids in (("ab", bare.encode("ab")), ("", [2])):
        done = say(model, ["law"], bare, prompt=prompt, sampling=SamplingConfig(max_tokens=1, temperature=0))[-1]
        assert (read.pop(), done.num_prompt_tokens) == (ids, 1)
    assert len(read_text(model, ["law"], build_gate(PosteriorGateConfig(), [1.0]), bare, "ab ab")["weights"]) == 2


def test_another_token_is_shown_with_its_blank(make_model) -> None:
    (word,), model = LLAMA.encode("ab"), make_model(["law"])
    with torch.no_grad():  # the most probable one everywhere
        head = model.lm.get_output_embeddings()
        head.weight[:] = 0
        head.bias = torch.nn.Parameter(torch.zeros(len(head.weight)).index_fill(0, torch.tensor(word), 9.0))
    reading = read_text(model, ["law"], build_gate(PosteriorGateConfig(), [1.0]), LLAMA, "ab ab cd�")
    assert "".join(reading["tokens"]) == "ab ab cd�"
    assert [text for text, _ in reading["best"]][:4] == ["ab", " ab", " ab", " ab"]


def test_a_stop_phrase_is_never_shown() -> None:
    phrases = StopPhrases(["\n\nEND", "xyz"])
    shown = [phrases.push(part) for part in ["abc x", "y", "w \n", "\nEN", "D tail"]]
    assert "".join(shown) == "abc xyw "
    assert phrases.matched


def test_text_held_back_for_a_phrase_that_did_not_come_is_shown_at_the_end() -> None:
    phrases = StopPhrases(["END"])
    assert phrases.push("the EN") == "the "
    assert phrases.rest() == "EN"


def test_a_scored_text_names_the_token_that_greedy_decoding_would_choose(model: MultiExpertModel, tokenizer) -> None:
    gate = build_gate(PosteriorGateConfig(), [1.0] * 4)
    (greedy, _) = say(model, model.keys, tokenizer, sampling=SamplingConfig(max_tokens=1, temperature=0))
    ids = tokenizer.encode(PROMPT)
    reading = read_text(model, model.keys, gate, tokenizer, PROMPT + tokenizer.decode([greedy.id]))
    assert reading["best"][len(ids)] == (reading["tokens"][-1], pytest.approx(greedy.logprob, abs=1e-5))
    for place, token in enumerate(ids):
        mixing = Mixing(model, model.keys, gate)
        list(mixing.read([tokenizer.bos_id, *ids[:place]]))
        best_logprob, best = mixing.distribution()[1].max(0)
        assert reading["best"][place][1] == pytest.approx(float(best_logprob), abs=1e-5)
        assert (reading["best"][place][0] == reading["tokens"][place]) is (int(best) == token)


def test_a_text_is_read_with_the_weights_before_each_token(model: MultiExpertModel, tokenizer: Tokenizer) -> None:
    reading = read_text(model, model.keys, build_gate(PosteriorGateConfig(), [1, 2, 3, 4]), tokenizer, PROMPT)
    assert "".join(reading["tokens"]) == PROMPT
    assert reading["weights"][0] == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert len(reading["weights"]) == len(reading["tokens"]) == len(reading["logprobs"])
    with pytest.raises(MixtureError, match=f"1 to {model.max_positions - 1} are supported"):
        read_text(model, model.keys, build_gate(PosteriorGateConfig(), [1, 2, 3, 4]), tokenizer, "")


@pytest.mark.parametrize("sampling", [SamplingConfig(temperature=1e-300), SamplingConfig(top_p=1e-300)], ids=str)
def test_what_float32_reads_as_nothing_is_the_most_probable_token(sampling: SamplingConfig) -> None:
    logprobs_V = torch.tensor([-6.0, -0.5, -7.0, -1.0])
    assert sample_token(logprobs_V, sampling, make_generator(1)) == 1


def test_unseeded_answers_have_random_generators_of_their_own() -> None:
    before = torch.random.get_rng_state()
    drawn = [torch.rand(4, generator=make_generator(None)).tolist() for _ in range(2)]
    assert drawn[0] != drawn[1]
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.rand(4, generator=make_generator(3)).tolist() == torch.rand(4, generator=make_generator(3)).tolist()


@pytest.mark.parametrize("reads", [lambda mixing, ids: mixing.feed(ids), lambda mixing, ids: list(mixing.read(ids))])
def test_a_prompt_that_nobody_wants_any_more_is_read_one_pass_further_at_most(model, monkeypatch, reads) -> None:
    monkeypatch.setattr("engine.inference.mixing.CHUNK_POSITIONS", 4)
    mixing = Mixing(model, model.keys, build_gate(PosteriorGateConfig(), [1.0] * 4))

    with cancel_scope(lambda: len(mixing.ids) >= 8), pytest.raises(CancelledError):
        reads(mixing, [5] * 20)

    assert len(mixing.ids) == 8


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
