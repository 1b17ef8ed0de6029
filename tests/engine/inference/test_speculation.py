"""A mixture whose leading expert drafts says, token by token, what it says without."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from scipy.stats import chisquare

from engine.config import SamplingConfig
from engine.inference.ensemble import Ensemble, Group
from engine.inference.generate import MOST_DRAFTS, DraftCount, DraftPace, best_number, generate
from engine.inference.mixing import Mixing
from engine.inference.shared_passes import SharedPasses
from engine.methods.multi_expert_files import new_placement
from engine.mixing.base import FixedGate, Gate
from engine.mixing.evidence import EvidenceRule
from engine.mixing.posterior import PosteriorGate
from engine.models.multi_expert import MultiExpertModel
from tests.engine.conftest import KEYS, model_with
from tests.engine.models.tiny_families import tiny_model


def drafting(*args: Any, **options: Any) -> SamplingConfig:
    return SamplingConfig(*args, **{"speculate": True, **options})


PROMPT = [3, 5, 7, 11, 13]
GATES: dict[str, Gate] = {
    "prefix": PosteriorGate([1, 2, 3, 4]),
    "last token": PosteriorGate([1.0] * 4, "last_token"),
    "forgetting": PosteriorGate([1.0] * 4, EvidenceRule(0.9, 0.3, 0.99, 0.1)),
    "top-k": PosteriorGate([1, 1, 2, 1], top_k=2),
    "fixed": FixedGate([1, 3, 1, 1], top_k=2),
}
SAMPLINGS = {
    "greedy": drafting(24, temperature=0),
    "sampled": drafting(24, seed=4),
    "every option": drafting(
        24, 0.8, 0.95, 9, 50, 0.01, 0.5, 0.3, 1.2, {7: 2.0, 8: -100.0}, ignore_eos=True, num_candidates=3
    ),
}


def ensemble_of(models: Sequence[MultiExpertModel]) -> Ensemble:
    passes = SharedPasses()

    def group(model: MultiExpertModel) -> Group:
        return Group(tuple(model.keys), lambda: passes.view(model), model.max_positions, model.vocab_size)

    return Ensemble(tuple(group(model) for model in models))


def alike(noise: float = 0.03, **options: Any) -> Ensemble:
    """Four experts that differ little, so that many drafts are right, and some wrong."""
    return ensemble_of([model_with(KEYS, noise=noise, **options)])


def say(
    ensemble: Any, gate: Gate, tokenizer: Any, sampling: SamplingConfig, *args: Any
) -> tuple[list[Any], DraftCount]:
    count = DraftCount()
    return list(generate(ensemble, KEYS, gate, tokenizer, PROMPT, sampling, *args, drafts=count)), count


def require_same(ours: Sequence[Any], theirs: Sequence[Any]) -> None:
    """The same tokens, with numbers that differ by rounding alone."""
    assert ours[-1] == theirs[-1]
    for our, other in zip(ours[:-1], theirs[:-1], strict=True):
        assert (our.id, our.text) == (other.id, other.text)
        assert our.logprob == pytest.approx(other.logprob, abs=1e-4)
        assert our.weights == pytest.approx(other.weights, abs=1e-4)
        assert [(c.id, c.text) for c in our.candidates] == [(c.id, c.text) for c in other.candidates]


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("gate", GATES.values(), ids=GATES)
def test_the_answer_is_that_of_plain_decoding(gate: Gate, sampling: SamplingConfig, tokenizer) -> None:
    ensemble = alike()
    plain, none = say(ensemble, gate, tokenizer, replace(sampling, speculate=False))
    ours, count = say(ensemble, gate, tokenizer, sampling)
    require_same(ours, plain)
    assert none.num_judged == 0
    assert 0 < count.num_accepted <= count.num_judged


@pytest.mark.parametrize("gate", GATES.values(), ids=GATES)
def test_wrong_drafts_leave_no_trace(gate: Gate, tokenizer, monkeypatch) -> None:
    monkeypatch.setattr("engine.inference.generate.best_number", lambda *_: 5)  # even where it does not pay
    ensemble = alike(noise=0.5)
    plain, _ = say(ensemble, gate, tokenizer, drafting(40, seed=2, speculate=False))
    ours, count = say(ensemble, gate, tokenizer, drafting(40, seed=2))
    require_same(ours, plain)
    assert count.num_accepted < count.num_judged


def test_models_with_all_weights_of_their_own_speculate_too(tokenizer) -> None:
    one = model_with(KEYS, noise=0.05)
    models = []
    for key in KEYS:
        own = model_with(KEYS, noise=0.05)
        for other in KEYS:
            own.remove_expert(other) if other != key else None
        models.append(own)
    sampling = drafting(24, seed=3)
    ours, count = say(ensemble_of(models), GATES["prefix"], tokenizer, sampling)
    require_same(ours, say(one, GATES["prefix"], tokenizer, sampling)[0])
    assert count.num_judged


def test_stop_phrases_end_an_answer_in_the_middle_of_drafts(tokenizer) -> None:
    ensemble, sampling = alike(), drafting(24, seed=4, ignore_eos=True)
    text = [event.text for event in say(ensemble, GATES["prefix"], tokenizer, sampling)[0][:-1]]
    phrase = next(piece for place, piece in enumerate(text) if place > 3 and piece not in "".join(text[:place]))
    plain, _ = say(ensemble, GATES["prefix"], tokenizer, replace(sampling, speculate=False), [phrase])
    ours, count = say(ensemble, GATES["prefix"], tokenizer, sampling, [phrase])
    assert ours[-1].reason == "phrase"
    assert count.num_judged
    require_same(ours, plain)


CUT_BACK = {"gpt2": True, "qwen2": True, "mistral": False, "recurrent_gemma": False}


@pytest.mark.parametrize(("family", "can"), CUT_BACK.items())
def test_what_cannot_be_cut_back_decodes_plainly(family: str, can: bool, tokenizer) -> None:
    from engine.methods.multi_expert_files import new_placement

    model = new_placement().build(tiny_model(family), KEYS, None).eval()
    ensemble = ensemble_of([model])
    sampling = drafting(12, seed=1, ignore_eos=True)
    ours, count = say(ensemble, GATES["prefix"], tokenizer, sampling)
    require_same(ours, say(ensemble, GATES["prefix"], tokenizer, replace(sampling, speculate=False))[0])
    assert bool(count.num_judged) is can


def test_a_stream_beside_others_decodes_plainly_and_drafts_again_when_they_are_gone(tokenizer) -> None:
    ensemble, count, sampling = alike(), DraftCount(), drafting(30, temperature=0)
    plain, _ = say(ensemble, GATES["prefix"], tokenizer, replace(sampling, speculate=False))
    other = generate(ensemble, KEYS, GATES["prefix"], tokenizer, PROMPT, drafting(30, seed=1))
    next(other)
    ours = generate(ensemble, KEYS, GATES["prefix"], tokenizer, PROMPT, sampling, drafts=count)
    events = [next(ours) for _ in range(6)]
    assert count.num_judged == 0
    other.close()
    require_same([*events, *ours], plain)
    assert count.num_judged


NUM_ANSWERS, NUM_LIKELY = 300, 6
COLD = 0.1  # so that experts that differ draw differently


def test_second_tokens_follow_the_mixture_and_drafts_of_them_do_not(tokenizer, monkeypatch) -> None:
    """By chi-square, over answers of many seeds; what the leading expert drafts would fail the same test."""
    monkeypatch.setattr("engine.inference.generate.best_number", lambda *_: 2)
    drafts: list[int] = []
    feed_with = Mixing.feed_with

    def noted(mixing: Mixing, token: int, tokens: Sequence[int]) -> None:
        if len(mixing.ids) == len(PROMPT):
            drafts.append(tokens[0])
        feed_with(mixing, token, tokens)

    monkeypatch.setattr(Mixing, "feed_with", noted)
    ensemble, gate = alike(noise=1.0), GATES["last token"]
    single = model_with(KEYS, noise=1.0)  # not a stream beside the others, which would then draft nothing
    bias = dict.fromkeys(range(NUM_LIKELY, 300), -100.0)  # a vocabulary of six
    drawn: Counter[int] = Counter()
    expected = torch.zeros(NUM_LIKELY, dtype=torch.float64)
    for seed in range(NUM_ANSWERS):
        sampling = drafting(4, COLD, seed=seed, logit_bias=bias, ignore_eos=True)
        first, second, *_ = [event.id for event in say(ensemble, gate, tokenizer, sampling)[0][:-1]]
        mixing = Mixing(single, KEYS, gate)
        mixing.feed([*PROMPT, first])
        expected += mixing.distribution()[1][:NUM_LIKELY].double().div(COLD).softmax(-1)
        drawn[second] += 1
    assert len(drafts) == NUM_ANSWERS
    assert chance(drawn, expected) > 0.01
    assert chance(Counter(drafts), expected) < 1e-4


def chance(counts: Counter[int], expected: torch.Tensor) -> float:
    """That so many of each token are drawn from a distribution."""
    return float(chisquare([counts[token] for token in range(NUM_LIKELY)], expected.numpy()).pvalue)


def test_many_right_drafts_make_more_of_them_and_wrong_ones_none() -> None:
    assert best_number(1.0, 8) == MOST_DRAFTS
    assert best_number(0.7, 8) > best_number(0.4, 8)
    assert best_number(0.1, 8) == 0


def test_after_wrong_drafts_it_stops_and_tries_again_now_and_then() -> None:
    pace = DraftPace()
    numbers = []
    for _ in range(200):
        if number := pace.number(8, 100):
            pace.expect([1] * number)
        numbers.append(number)
        pace.judge(2)
    assert numbers[0] > 0
    assert 0 < sum(map(bool, numbers[-100:])) < 10
    for _ in range(200):  # right ones bring it back
        if number := pace.number(8, 100):
            pace.expect([1] * number)
        pace.judge(1)
    assert pace.number(8, 100) == MOST_DRAFTS
    assert pace.number(8, 2) == 2
    assert pace.number(8, -1) == 0


def test_where_every_draft_is_wrong_few_are_made() -> None:
    pace, drafted = DraftPace(), []
    for token in range(200):
        if number := pace.number(8, 100):
            pace.expect([1] * number)
            drafted.append((token, number))
        pace.judge(2)
    assert [number for _, number in drafted] == [1, 1, 1, 1]
    waits = [later - earlier for (earlier, _), (later, _) in pairwise(drafted)]
    assert waits[0] >= 16
    assert all(later >= 2 * earlier - 2 for earlier, later in pairwise(waits))


@pytest.mark.parametrize(
    ("models", "keys", "reason"),
    [
        (alike, KEYS[:1], "one expert has no others to draft for"),
        (lambda: model_with(KEYS), KEYS, "the process does not ask for it"),
        (
            lambda: ensemble_of([MultiExpertModel(tiny_model("mistral"), KEYS, new_placement()).eval()]),
            KEYS,
            "its attention has windows",
        ),
    ],
)
def test_an_answer_for_which_nothing_was_drafted_says_why(tokenizer, models: Any, keys: list[str], reason: str) -> None:
    *_, done = generate(models(), keys, FixedGate([1] * len(keys)), tokenizer, PROMPT, drafting(4), stop_ids=())
    assert done.drafting.num_judged == 0
    assert done.drafting.why_not.endswith(reason)


def test_an_answer_says_how_many_of_its_own_drafts_were_right(tokenizer) -> None:
    everybody = DraftCount(100, 50)
    *_, done = generate(
        alike(), KEYS, FixedGate([1] * 4), tokenizer, PROMPT, drafting(12), stop_ids=(), drafts=everybody
    )
    assert (done.drafting.num_judged, done.drafting.num_accepted) == (
        everybody.num_judged - 100,
        everybody.num_accepted - 50,
    )
    assert done.drafting.num_judged > 0
