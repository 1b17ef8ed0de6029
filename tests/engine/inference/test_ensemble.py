"""Experts of several bases mix as those of one do; a base without weight sleeps, and nobody notices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from engine.config import SamplingConfig
from engine.errors import MixtureError
from engine.events import Token
from engine.inference.ensemble import Ensemble, Group, group_of
from engine.inference.generate import generate, read_text
from engine.inference.mixing import Mixing
from engine.methods.multi_expert_files import new_placement
from engine.mixing.base import FixedGate, Gate, mix
from engine.mixing.cluster import ClusterGate
from engine.mixing.gate_type import build_gate, gate_type
from engine.mixing.gates.posterior import PosteriorGateConfig
from engine.models.families import fresh_model
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows
from tests.engine.clustered import NUM_CLUSTERS, WORDS, tiny_routing, tiny_tokenizer
from tests.engine.conftest import VOCAB, small_shape

ELMS = ["court", "cake", "sea", "code"]
TEXT = "the court held the appeal then flour sugar butter bake cake waves harbour tide"


def elm(key: str, seed: int) -> MultiExpertModel:
    """A whole model with weights of its own, large enough for the context to count."""
    model = MultiExpertModel(fresh_model(small_shape(), VOCAB, seed), [key], new_placement()).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model


@pytest.fixture
def elms() -> dict[str, MultiExpertModel]:
    return {key: elm(key, seed) for seed, key in enumerate(ELMS)}


def ensemble_of(*models: MultiExpertModel) -> Ensemble:
    return Ensemble(tuple(group_of(model, model.keys) for model in models))


def ids_of(text: str = TEXT) -> list[int]:
    return [tiny_tokenizer().bos_id, *tiny_tokenizer().encode(text)][:50]


@torch.no_grad()
def plain(model: MultiExpertModel, key: str, ids: Sequence[int]) -> Tensor:
    """Log-probabilities [T, V] of one expert, without any cache."""
    return model(torch.tensor([list(ids)]), Rows.all_to(key, 1))[0].log_softmax(-1)


def decoded(mixing: Mixing, ids: Sequence[int], first: int = 5) -> tuple[Tensor, Tensor]:
    """Weights [T, E] and the mixture's log-probabilities [T, V] from the token `first` on, read one by one."""
    mixing.feed(ids[:first])
    result = [mixing.distribution()]
    for token in ids[first:]:
        mixing.feed([token])
        result.append(mixing.distribution())
    weights, logprobs = zip(*result, strict=True)
    return torch.stack(weights), torch.stack(logprobs)


def test_a_mixture_of_demix_experts_and_full_models_is_the_sum_of_all(model: MultiExpertModel, elms) -> None:
    keys = ["court", "law", "cake", "news"]  # their order is not that of the bases
    ensemble, ids, prior = ensemble_of(model, *elms.values()), ids_of(), [1.0, 2.0, 3.0, 4.0]
    mixing = Mixing(ensemble, keys, build_gate(PosteriorGateConfig(), prior))
    weights_TE, mixed_TV = decoded(mixing, ids)
    every_ETV = torch.stack([plain(elms.get(key, model), key, ids) for key in keys])
    stream = build_gate(PosteriorGateConfig(), prior).start()
    for position, token in enumerate(ids[1:]):
        if position >= 4:
            torch.testing.assert_close(weights_TE[position - 4], stream.log_weights().exp(), atol=1e-5, rtol=0)
            expected_V = mix(stream.log_weights(), every_ETV[:, position])
            torch.testing.assert_close(mixed_TV[position - 4], expected_V, atol=1e-5, rtol=1e-5)
        stream.observe(every_ETV[:, position, token], token)
    torch.testing.assert_close(mixed_TV.exp().sum(-1), torch.ones(len(mixed_TV)), atol=1e-5, rtol=0)  # L13


@pytest.mark.parametrize("kind", ["posterior", "fixed"])
def test_all_weight_on_one_model_is_that_model_to_the_bit(elms, kind) -> None:  # L1, L2
    gate = build_gate(gate_type(kind).config(kind), [0, 0, 1, 0])
    _, among = decoded(Mixing(ensemble_of(*elms.values()), ELMS, gate), ids_of())
    _, by_itself = decoded(Mixing(elms["sea"], ["sea"], build_gate(PosteriorGateConfig(), [1.0])), ids_of())
    assert torch.equal(among, by_itself)
    assert torch.equal(by_itself[0], plain(elms["sea"], "sea", ids_of()[:5])[-1])


@pytest.mark.parametrize("kind", ["posterior", "updating", "fixed"])
def test_a_mixture_without_a_model_is_the_one_that_never_loaded_it(model: MultiExpertModel, elms, kind) -> None:  # L7
    left = ["law", "court", "news", "sea"]
    gate = build_gate(gate_type(kind).config(kind), [1, 2, 3, 4])
    off = decoded(Mixing(ensemble_of(model, *elms.values()), left, gate), ids_of())
    model.remove_expert("code")
    never = decoded(Mixing(ensemble_of(model, elms["court"], elms["sea"]), left, gate), ids_of())
    assert torch.equal(off[1], never[1])
    assert torch.equal(off[0], never[0])


def test_permuting_models_changes_no_probability(elms) -> None:  # L6
    order = [2, 0, 3, 1]
    one = decoded(Mixing(ensemble_of(*elms.values()), ELMS, build_gate(PosteriorGateConfig(), [1, 2, 3, 4])), ids_of())
    keys = [ELMS[i] for i in order]
    gate = build_gate(PosteriorGateConfig(), [1.0 + i for i in order])
    two = decoded(Mixing(ensemble_of(*(elms[key] for key in keys)), keys, gate), ids_of())
    torch.testing.assert_close(two[0], one[0][:, order], atol=1e-6, rtol=0)
    torch.testing.assert_close(two[1], one[1], atol=1e-5, rtol=1e-6)


class Listening:
    """The same gate, for which no expert ever sleeps."""

    needs_logprobs = True

    def __init__(self, gate: Gate) -> None:
        self.start, self.block, self.total = gate.start, gate.block, gate.total


def counted(elms: dict[str, MultiExpertModel]) -> tuple[Ensemble, Counter[str]]:
    """An ensemble that counts how often each model is asked for."""
    calls: Counter[str] = Counter()

    def requested(key: str) -> MultiExpertModel:
        calls[key] += 1
        return elms[key]

    groups = [
        Group((key,), lambda key=key: requested(key), one.max_positions, one.vocab_size) for key, one in elms.items()
    ]
    return Ensemble(tuple(groups)), calls


@pytest.mark.parametrize("top_k", [1, 2])
def test_a_model_without_weight_is_not_run_and_catches_up_exactly_when_it_gets_weight(elms, top_k: int) -> None:  # L18
    gate = ClusterGate([1.0] * NUM_CLUSTERS, tiny_routing(), temperature=0.3, top_k=top_k)
    ensemble, calls = counted(elms)
    slept = decoded(Mixing(ensemble, ELMS, gate), ids_of())
    awake = decoded(Mixing(ensemble_of(*elms.values()), ELMS, Listening(gate)), ids_of())
    assert torch.equal(slept[0], awake[0])
    torch.testing.assert_close(slept[1], awake[1], atol=1e-5, rtol=1e-5)
    leaders = slept[0].argmax(1).unique()
    assert len(leaders) > 1  # somebody woke up late
    assert sum(calls.values()) == top_k * len(slept[0])


def test_who_wakes_up_late_reads_what_it_missed_in_one_go(elms) -> None:
    ensemble, calls = counted(elms)
    gate = ClusterGate([1.0] * NUM_CLUSTERS, tiny_routing(), temperature=0.1, top_k=1)
    mixing = Mixing(ensemble, ELMS, gate)
    mixing.feed(ids_of(WORDS[0]))
    assert not calls  # a prompt alone asks nobody
    first = int(mixing.distribution()[0].argmax())
    for token in ids_of(WORDS[1])[:20]:  # another text
        mixing.feed([token])
    second = int(mixing.distribution()[0].argmax())
    assert first != second
    assert calls == {ELMS[first]: 1, ELMS[second]: 1}


def test_an_expert_without_weight_is_never_run(elms) -> None:
    ensemble, calls = counted(elms)
    gate = FixedGate([1, 2, 3, 4], top_k=2)
    shown = list(generate(ensemble, ELMS, gate, tiny_tokenizer(), "the court", SamplingConfig(max_tokens=6, seed=1)))
    assert set(calls) == {"sea", "code"}
    assert all(list(one.weights) == ELMS and one.weights["court"] == 0 for one in shown if isinstance(one, Token))


@pytest.mark.parametrize("kind", ["posterior", "fixed", "cluster"])
def test_a_text_read_token_by_token_is_what_is_read_together(elms, kind) -> None:
    softness = {"temperature": 0.5} if "temperature" in gate_type(kind).settings else {}
    gate = build_gate(gate_type(kind).config(kind, **softness, top_k=2), [1, 2, 3, 4], tiny_routing())
    ensemble, ids = ensemble_of(*elms.values()), ids_of()
    together = list(Mixing(ensemble, ELMS, gate).read(ids))
    mixing = Mixing(ensemble, ELMS, gate)
    by_itself = [pair for token in ids for pair in mixing.read([token])]
    for (weights_E, observed_E), (expected_E, message_E) in zip(by_itself, together, strict=True):
        torch.testing.assert_close(weights_E.exp(), expected_E.exp(), atol=1e-5, rtol=0)
        torch.testing.assert_close(observed_E, message_E, atol=1e-4, rtol=1e-5, equal_nan=True)
    reading = read_text(ensemble, ELMS, gate, tiny_tokenizer(), TEXT)
    scored = [float(mix(weights_E, observed_E)) for weights_E, observed_E in together]
    assert reading["logprobs"][: len(scored)] == pytest.approx(scored, abs=1e-4)


def test_a_small_chunk_changes_nothing(elms, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = ClusterGate([1.0] * NUM_CLUSTERS, tiny_routing(), temperature=0.3, top_k=1)
    full = decoded(Mixing(ensemble_of(*elms.values()), ELMS, gate), ids_of())
    monkeypatch.setattr("engine.inference.mixing._CHUNK_ELEMENTS", 7 * VOCAB * len(ELMS))
    pieces = Mixing(ensemble_of(*elms.values()), ELMS, gate)
    read = list(Mixing(ensemble_of(*elms.values()), ELMS, gate).read(ids_of()))
    result = decoded(pieces, ids_of())
    torch.testing.assert_close(result[1], full[1], atol=1e-5, rtol=1e-5)
    for position, (log_weights_E, observed_E) in enumerate(read[4:]):
        expected = full[1][position, ids_of()[position + 5]]
        torch.testing.assert_close(mix(log_weights_E, observed_E), expected, atol=1e-5, rtol=1e-5)


def test_models_that_cannot_mix_are_refused(elms) -> None:
    other = MultiExpertModel(fresh_model(small_shape(), VOCAB + 20), ["other"], new_placement()).eval()
    with pytest.raises(MixtureError, match=r"vocabularies of one size, got \[300, 320\]"):
        ensemble_of(elms["sea"], other)
    with pytest.raises(MixtureError, match="no expert “moon”"):
        Mixing(ensemble_of(elms["sea"]), ["moon"], build_gate(PosteriorGateConfig(), [1.0]))
    with pytest.raises(MixtureError, match="no active expert"):
        Mixing(ensemble_of(*elms.values()), [], build_gate(PosteriorGateConfig(), [1.0]))


def test_an_expert_drawn_for_each_token_speaks_as_itself_and_the_others_do_not_run(
    elms: dict[str, MultiExpertModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its distribution is the expert's own, whatever was read late, and it is drawn as often as its weight says."""
    weights, ids, generator = [4.0, 3.0, 2.0, 1.0], ids_of(), torch.Generator().manual_seed(0)
    passes: Counter[str] = Counter()
    for key, model in elms.items():
        real = model.read

        def read(*given: object, real=real, key=key, **options: object) -> Tensor:
            passes[key] += 1
            return real(*given, **options)

        monkeypatch.setattr(model, "read", read)
    mixing = Mixing(ensemble_of(*elms.values()), ELMS, FixedGate(weights))
    mixing.feed(ids[:8])
    drawn: Counter[str] = Counter()
    for number in range(8, len(ids)):
        weights_E, logprobs_V = mixing.drawn(generator)
        key = ELMS[int(weights_E.argmax())]
        assert weights_E.tolist() == [float(one == key) for one in ELMS]
        drawn[key] += 1
        torch.testing.assert_close(logprobs_V, plain(elms[key], key, ids[:number])[-1], atol=1e-4, rtol=1e-4)
        mixing.feed([ids[number]])
    assert passes == drawn  # a pass for each token that it was drawn for, with what it had missed
    many = Counter(ELMS[int(mixing.drawn(generator)[0].argmax())] for _ in range(2000))
    for key, weight in zip(ELMS, weights, strict=True):
        assert many[key] / 2000 == pytest.approx(weight / 10, abs=0.04)  # four times its standard error


def test_a_text_of_drawn_experts_is_repeated_by_its_seed_and_what_changes_its_law_is_refused(
    elms: dict[str, MultiExpertModel],
) -> None:
    def say(gate: Gate, **options: object) -> list[Token]:
        sampling = SamplingConfig(max_tokens=12, seed=5, draw_expert=True, **options)  # type: ignore[arg-type]
        events = generate(ensemble_of(*elms.values()), ELMS, gate, tiny_tokenizer(), TEXT, sampling)
        return [event for event in events if isinstance(event, Token)]

    text = say(FixedGate([1.0] * 4))
    assert text
    assert text == say(FixedGate([1.0] * 4))
    assert all(sorted(token.weights.values()) == [0, 0, 0, 1] for token in text)
    assert say(ClusterGate([1.0] * 4, tiny_routing(4)))
    with pytest.raises(MixtureError, match="follow from what each expert predicts"):
        say(build_gate(PosteriorGateConfig(), [1.0] * 4))
    one = SamplingConfig(max_tokens=4, seed=5, draw_expert=True)  # a single expert is always drawn, by any gate
    group = Ensemble((group_of(elms["sea"], ["sea"]),))
    assert list(generate(group, ["sea"], build_gate(PosteriorGateConfig(), [1.0]), tiny_tokenizer(), TEXT, one))
    changes = {"temperature": 0.0, "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1.1, "speculate": True}
    for name, value in changes.items():
        with pytest.raises(MixtureError, match=rf"but there is {name}:"):
            say(FixedGate([1.0] * 4), **{name: value})
