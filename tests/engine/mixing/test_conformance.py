"""What every gate of the registry must do, plug-ins included. E experts, N blocks, T positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.errors import MixtureError
from engine.mixing.base import Gate, mix
from engine.mixing.evidence import READINGS
from engine.mixing.gate_type import ClusteringGateConfig, GateConfig, build_gate, gate_type, gate_types
from engine.mixing.posterior import UpdatingGate
from engine.selfcheck.test_bed import every_gate
from tests.engine.clustered import tiny_distances, tiny_routing, tiny_tokens

NUM_BLOCKS, BLOCK = 3, 20
PRIOR = [1.0, 2.0, 3.0, 4.0]
CONFIGS = list(every_gate())
CONFIGS += [replace(one, freeze_after=3) for one in CONFIGS if hasattr(one, "freeze_after")]
OF_PRIOR = ("fixed", "posterior", "updating")  # gates of ours that start at the prior itself
IN_BITS = [  # that do not depend on how many numbers are computed together
    one
    for one in CONFIGS
    if getattr(one, "update_every", BLOCK) == BLOCK and getattr(one, "evidence", "prefix") in READINGS
]
UNCLUSTERED = 1  # the cluster whose experts have none where a gate also weighs such experts
for_every_gate = pytest.mark.parametrize("config", CONFIGS, ids=str)


def build(config: GateConfig, prior: Sequence[float]) -> Gate:
    routing = tiny_routing(len(prior))
    if gate_type(config.kind).weighs_unclustered:
        routing = replace(
            routing, clusters=[None if cluster == UNCLUSTERED else cluster for cluster in routing.clusters]
        )
    return build_gate(config, prior, routing)


def weights(config: GateConfig, prior: Sequence[float], scores_ENT: Tensor) -> Tensor:
    distances = tiny_distances(scores_ENT[0].numel(), scores_ENT.shape[2])
    return build(config, prior).block(scores_ENT, distances).exp()


def scores(num_experts: int = 4, num_blocks: int = NUM_BLOCKS) -> Tensor:
    return -torch.rand(num_experts, num_blocks, BLOCK, generator=torch.Generator().manual_seed(0)) * 8


def test_every_gate_has_a_variant() -> None:
    assert {config.kind for config in CONFIGS} == set(gate_types())


@settings(max_examples=100)
@given(
    st.lists(st.floats(0.01, 100), min_size=2, max_size=9),
    st.integers(0, 10**6),
    st.sampled_from(CONFIGS),
    st.integers(1, 40),
)
def test_weights_are_probabilities_whatever_the_prior_and_the_text(
    prior: list[float], seed: int, config: GateConfig, length: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    weights_ENT = weights(config, prior, -torch.rand(len(prior), 1, length, generator=generator) * 400)
    assert bool((weights_ENT >= 0).all())
    assert ((weights_ENT.sum(0) - 1).abs() < 1e-6).all()


@for_every_gate
def test_a_stream_gives_the_weights_of_blocks(config: GateConfig) -> None:
    gate, scores_ENT, tokens = build(config, PRIOR), scores(), tiny_tokens(NUM_BLOCKS * BLOCK + 1).tolist()
    weights_ENT, stream = weights(config, PRIOR, scores_ENT), gate.start()
    for block in range(NUM_BLOCKS):
        stream = stream if isinstance(gate, UpdatingGate) else gate.start()
        stream.begin(tokens[block * BLOCK])
        for position in range(BLOCK):
            expected_E = weights_ENT[:, block, position]
            torch.testing.assert_close(stream.log_weights().exp(), expected_E, atol=1e-6, rtol=0)
            stream.observe(scores_ENT[:, block, position], tokens[block * BLOCK + position + 1])


@for_every_gate
def test_the_mixture_is_the_weighted_sum_and_the_total_its_sum(config: GateConfig) -> None:
    gate, scores_ENT, distances = build(config, PRIOR), scores().double(), tiny_distances(NUM_BLOCKS * BLOCK, BLOCK)
    mixed_NT = mix(gate.block(scores_ENT, distances), scores_ENT)
    torch.testing.assert_close(gate.mixed(scores_ENT, distances), mixed_NT)
    assert gate.total(scores_ENT, distances) == pytest.approx(float(mixed_NT.sum()), rel=1e-9)


@pytest.mark.parametrize("config", IN_BITS, ids=str)
def test_some_blocks_at_a_time_give_the_bits_of_all_together(
    config: GateConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, scores_ENT, distances = build(config, PRIOR), scores(num_blocks=7), tiny_distances(7 * BLOCK, BLOCK)
    expected_NT = mix(gate.block(scores_ENT, distances), scores_ENT.double())
    for chunk_size in (1, 200, 1 << 20):  # one block, two, all
        monkeypatch.setattr("engine.mixing.base._CHUNK_SIZE", chunk_size)
        assert torch.equal(gate.mixed(scores_ENT, distances), expected_NT)


@pytest.mark.parametrize("config", [config for config in CONFIGS if config.kind in OF_PRIOR], ids=str)
def test_the_first_position_has_the_prior_itself(config: GateConfig) -> None:
    expected_E = torch.tensor(PRIOR, dtype=torch.float64)
    if config.top_k:
        expected_E[: -config.top_k] = 0
    first_E = build(config, PRIOR).start().log_weights().exp()
    torch.testing.assert_close(first_E, expected_E / expected_E.sum(), atol=1e-9, rtol=0)


@for_every_gate
def test_all_weight_on_one_expert_is_that_expert(config: GateConfig) -> None:
    distances = tiny_distances(NUM_BLOCKS * BLOCK, BLOCK)
    log_weights_ENT = build(config, [0, 0, 1, 0]).block(scores(), distances)
    assert torch.equal(mix(log_weights_ENT, scores()), scores()[2])


@for_every_gate
def test_an_expert_of_weight_zero_has_no_weight_and_scale_does_not_count(config: GateConfig) -> None:
    weights_ENT = weights(config, [1, 0, 3, 4], scores())
    assert not weights_ENT[1].any()
    torch.testing.assert_close(weights(config, [2, 0, 6, 8], scores()), weights_ENT)


@for_every_gate
def test_the_prior_matters(config: GateConfig) -> None:
    assert not torch.allclose(weights(config, PRIOR, scores()), weights(config, PRIOR[::-1], scores()))


@for_every_gate
def test_of_experts_that_give_a_token_no_chance_weights_stay_numbers(config: GateConfig) -> None:
    scores_ENT = scores()
    scores_ENT[:, :, 2] = -torch.inf
    assert not weights(config, PRIOR, scores_ENT).isnan().any()


@for_every_gate
def test_top_k_keeps_the_largest_weights(config: GateConfig) -> None:
    full_ENT = weights(replace(config, top_k=None), PRIOR, scores(num_blocks=1))
    top_ENT = weights(replace(config, top_k=2), PRIOR, scores(num_blocks=1))
    assert bool(((top_ENT > 0).sum(0) <= 2).all())
    kept_ENT = torch.zeros_like(full_ENT).scatter(0, full_ENT.topk(2, 0).indices, full_ENT.topk(2, 0).values)
    torch.testing.assert_close(top_ENT, kept_ENT / kept_ENT.sum(0), atol=1e-6, rtol=0)


@for_every_gate
def test_a_gate_without_a_need_for_log_probabilities_ignores_them(config: GateConfig) -> None:
    differs = not torch.equal(weights(config, PRIOR, scores()), weights(config, PRIOR, scores().flip(0)))
    assert differs == build(config, PRIOR).needs_logprobs


@pytest.mark.parametrize("name", gate_types())
def test_settings_have_sentences_and_are_checked(name: str) -> None:
    chosen = gate_type(name)
    assert chosen.config(name) == chosen.config(kind=chosen.name)
    assert chosen.title
    assert not chosen.sentence.endswith(".")


@pytest.mark.parametrize("name", gate_types())
def test_a_gate_without_its_clustering_says_so(name: str) -> None:
    chosen = gate_type(name)
    assert chosen.needs_clustering == issubclass(chosen.config, ClusteringGateConfig)
    if not chosen.needs_clustering:
        assert len(build_gate(chosen.config(name), PRIOR).start().log_weights()) == len(PRIOR)
        return
    with pytest.raises(MixtureError, match="needs the cluster of each expert"):
        build_gate(chosen.config(name), PRIOR)


def test_an_unknown_gate_is_named_with_those_there_are() -> None:
    with pytest.raises(MixtureError, match=r"There is no gate “odd”.*posterior"):
        gate_type("odd")
