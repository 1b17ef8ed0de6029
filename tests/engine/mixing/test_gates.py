"""The laws of weights for the gates that come with the workbench. E experts, N blocks, T positions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.config import Evidence
from engine.errors import MixtureError
from engine.inference.scores import as_blocks, mix_scores
from engine.mixing.base import Gate, keep_top, mix
from engine.mixing.gate_type import GateConfig, build_gate, gate_type
from engine.mixing.gates.cluster import ClusterGateConfig
from engine.mixing.gates.cluster_posterior import ClusterPosteriorGateConfig
from engine.mixing.gates.fixed import FixedGateConfig
from engine.mixing.gates.posterior import PosteriorGateConfig
from engine.mixing.gates.updating import UpdatingGateConfig
from engine.mixing.posterior import PosteriorGate, UpdatingGate, estimate_prior
from tests.engine.clustered import tiny_distances, tiny_routing, tiny_tokens

Make = Callable[..., Gate]
EVIDENCE: tuple[Evidence, ...] = get_args(Evidence)
CONFIGS: dict[str, GateConfig] = {
    f"posterior-{evidence}-top{top_k}": PosteriorGateConfig(evidence=evidence, top_k=top_k)
    for evidence in EVIDENCE
    for top_k in (None, 2)
}
CONFIGS |= {
    f"updating-{evidence}-top{top_k}": UpdatingGateConfig(
        evidence=evidence, newest_weight=0.3, update_every=20, top_k=top_k
    )
    for evidence in EVIDENCE
    for top_k in (None, 2)
}
CONFIGS |= {f"fixed-top{top_k}": FixedGateConfig(top_k=top_k) for top_k in (None, 2)}
CONFIGS |= {
    f"updating-{evidence}-every{tokens}-top{top_k}": UpdatingGateConfig(
        evidence=evidence, newest_weight=0.3, update_every=tokens, top_k=top_k
    )
    for evidence in EVIDENCE
    for tokens in (7, 33)  # blocks have 20
    for top_k in (None, 2)
}
CONFIGS |= {
    f"cluster-power{power}-frozen{freeze_after}-top{top_k}": ClusterGateConfig(
        temperature=0.5, distance_power=power, freeze_after=freeze_after, top_k=top_k
    )
    for power, freeze_after in ((2, None), (4, 3))
    for top_k in (None, 2)
}
FROZEN: list[tuple[Evidence, int | None]] = [("prefix", None), ("last_token", 3)]
CONFIGS |= {
    f"cluster-posterior-{evidence}-frozen{freeze_after}-top{top_k}": ClusterPosteriorGateConfig(
        evidence=evidence, temperature=0.5, freeze_after=freeze_after, top_k=top_k
    )
    for evidence, freeze_after in FROZEN
    for top_k in (None, 2)
}
HOMELESS = 1  # the cluster whose experts are of none where a gate weighs such experts, too


def gate_of(config: GateConfig, prior: Sequence[float], order: Sequence[int] | None = None) -> Gate:
    """`order` holds the cluster of each expert, where it is not its own number."""
    routing = tiny_routing(len(prior), order)
    if gate_type(config.kind).weighs_unclustered:
        routing = replace(routing, clusters=[None if one == HOMELESS else one for one in routing.clusters])
    return build_gate(config, prior, routing)


GATES: dict[str, Make] = {name: partial(gate_of, config) for name, config in CONFIGS.items()}
every_gate = pytest.mark.parametrize("make", GATES.values(), ids=GATES.keys())


def weigh(gate: Gate, scores_ENT: Tensor) -> Tensor:
    """The log-weights of blocks of the tiny text, with its distances: most gates do not look at them."""
    return gate.block(scores_ENT, tiny_distances(scores_ENT[0].numel(), scores_ENT.shape[2]))


def logprobs(num_experts: int = 4, blocks: int = 3, positions: int = 20, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return -torch.rand(num_experts, blocks, positions, generator=generator) * 8


@every_gate
def test_weights_sum_to_one_at_every_position(make: Make) -> None:  # L5
    weights_ENT = weigh(make([1, 2, 3, 4]), logprobs()).exp()
    torch.testing.assert_close(weights_ENT.sum(0), torch.ones(3, 20, dtype=torch.float64), atol=1e-6, rtol=0)


@every_gate
def test_a_stream_gives_token_by_token_what_the_block_gives_together(make: Make) -> None:  # L15
    gate, scores_ENT = make([1, 2, 3, 4]), logprobs()
    full_ENT, tokens = weigh(gate, scores_ENT), tiny_tokens(61).tolist()
    stream = gate.start()
    for block in range(scores_ENT.shape[1]):
        stream = stream if isinstance(gate, UpdatingGate) else gate.start()
        stream.begin(tokens[block * 20])
        for position in range(scores_ENT.shape[2]):
            torch.testing.assert_close(
                stream.log_weights().exp(), full_ENT[:, block, position].exp(), atol=1e-6, rtol=0
            )
            stream.observe(scores_ENT[:, block, position], tokens[block * 20 + position + 1])


@every_gate
def test_the_total_of_blocks_is_the_sum_over_their_tokens(make: Make) -> None:
    gate, scores_ENT = make([1, 2, 3, 4]), logprobs().double()
    total = gate.total(scores_ENT, tiny_distances(60, 20))
    assert total == pytest.approx(float(mix(weigh(gate, scores_ENT), scores_ENT).sum()), rel=1e-9)


@pytest.mark.parametrize("name", [name for name in GATES if "-every" not in name])  # 7 and 33 are no vectors' lengths
def test_some_blocks_at_a_time_give_the_bits_of_all_together(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, scores_ENT = GATES[name]([1, 2, 3, 4]), logprobs(blocks=7)
    expected_NT = mix(weigh(gate, scores_ENT), scores_ENT.double())
    for chunk_size in (1, 200, 1 << 20):  # one block, two, all
        monkeypatch.setattr("engine.mixing.base._CHUNK_SIZE", chunk_size)
        assert torch.equal(gate.mixed(scores_ENT, tiny_distances(140, 20)), expected_NT)


@pytest.mark.parametrize("name", [name for name in GATES if not name.startswith("cluster")])
def test_the_first_position_has_the_prior_itself(name: str) -> None:
    first_E = GATES[name]([1, 2, 3, 4]).start().log_weights().exp()
    expected = torch.tensor([1, 2, 3, 4.0], dtype=torch.float64)
    if int((first_E > 0).sum()) == 2:
        expected[:2] = 0
    torch.testing.assert_close(first_E, expected / expected.sum(), atol=1e-9, rtol=0)


@every_gate
def test_permuting_experts_permutes_weights_and_changes_no_probability(make: Make) -> None:  # L6
    order, prior = [2, 0, 3, 1], [1.0, 2.0, 3.0, 4.0]
    scores_ENT = logprobs()
    one = weigh(make(prior), scores_ENT)
    two = weigh(make([prior[i] for i in order], order), scores_ENT[order])
    torch.testing.assert_close(two.exp(), one[order].exp(), atol=1e-6, rtol=0)
    torch.testing.assert_close(mix(two, scores_ENT[order].double()), mix(one, scores_ENT.double()), atol=1e-6, rtol=0)


@every_gate
def test_all_weight_on_one_expert_is_that_expert_to_the_bit(make: Make) -> None:  # L1
    scores_ENT = logprobs()
    mixed = mix(weigh(make([0, 0, 1, 0]), scores_ENT), scores_ENT)
    assert torch.equal(mixed, scores_ENT[2])


@every_gate
def test_a_mixture_of_one_expert_is_that_expert(make: Make) -> None:  # L2
    scores_ENT = logprobs(num_experts=1)
    assert torch.equal(mix(weigh(make([1.0]), scores_ENT), scores_ENT), scores_ENT[0])


@every_gate
@pytest.mark.parametrize("num_experts", [4, 7, 24, 30])  # 1/7 has no exact binary number, nor has the sum of seven
def test_a_cached_prior_of_equal_shares_is_the_uniform_mode(make: Make, num_experts: int) -> None:  # L3
    scores_ENT = logprobs(num_experts)
    cached, uniform = (weigh(make([share] * num_experts), scores_ENT) for share in (1 / num_experts, 1.0))
    assert torch.equal(cached, uniform)


@every_gate
def test_identical_experts_give_the_same_probabilities_under_any_prior(make: Make) -> None:  # L4
    scores_ENT = logprobs()[:1].expand(4, -1, -1)
    mixed = mix(weigh(make([1, 5, 2, 9]), scores_ENT), scores_ENT.double())
    torch.testing.assert_close(mixed, scores_ENT[0].double(), atol=1e-6, rtol=0)


@every_gate
def test_no_nan_when_every_expert_gives_a_token_probability_zero_in_half_precision(make: Make) -> None:  # L14
    half = torch.tensor([-65504.0, -torch.inf, -torch.inf], dtype=torch.float16).float()
    scores_ENT = logprobs(positions=6)
    scores_ENT[:, :, 2] = -torch.inf
    scores_ENT[:3, :, 3] = half[:, None]
    gate = make([1, 1, 1, 1])
    weights_ENT = weigh(gate, scores_ENT).exp()
    assert not weights_ENT.isnan().any()
    assert not mix(weigh(gate, scores_ENT), scores_ENT.double()).isnan().any()
    torch.testing.assert_close(weights_ENT.sum(0), torch.ones(3, 6, dtype=torch.float64), atol=1e-6, rtol=0)


@pytest.mark.parametrize("cut", [1, 7, 20, 33, 59])
@pytest.mark.parametrize("name", [name for name in GATES if not name.startswith(("fixed", "cluster-power"))])
def test_a_stream_cut_in_two_and_resumed_is_the_uncut_one(name: str, cut: int) -> None:  # L15
    gate, scores_EX, tokens = GATES[name]([1, 2, 3, 4]), logprobs().flatten(1), tiny_tokens(61).tolist()
    uncut, first = gate.start(), gate.start()
    for stream in (uncut, first):
        stream.begin(tokens[0])
    for position in range(60):
        if position == cut:
            first = gate.start(first.belief)
            for token in tokens[: cut + 1]:
                first.begin(token)
        assert torch.equal(first.log_weights(), uncut.log_weights())
        for stream in (uncut, first):
            stream.observe(scores_EX[:, position], tokens[position + 1])


@pytest.mark.parametrize("lambda_", [0.1, 0.3, 0.5, 1.0])  # the grid of §5.1
def test_the_updating_prior_is_the_weighted_mean_of_equation_nine(lambda_: float) -> None:
    scores_ENT = logprobs(blocks=4) / 10
    gate = build_gate(UpdatingGateConfig(newest_weight=1 - lambda_, update_every=20), [1.0] * 4)
    prior = torch.full((4,), 0.25, dtype=torch.float64)
    posteriors: list[Tensor] = []
    for n in range(4):
        torch.testing.assert_close(gate.block(scores_ENT)[:, n, 0].exp(), prior)
        posteriors.append((scores_ENT[:, n].double().sum(-1) + prior.log()).softmax(0))
        decayed = torch.tensor([lambda_ ** (n + 1 - t) for t in range(n + 1)], dtype=torch.float64)  # Eq. 9
        prior = (decayed[:, None] * torch.stack(posteriors)).sum(0) / decayed.sum()


@pytest.mark.parametrize("evidence", ["prefix", "last_token"])
def test_blocks_of_as_many_tokens_as_the_prior_learns_after_are_weighed_as_they_stand(evidence: Evidence) -> None:
    gate, scores_ENT = UpdatingGate([1, 2, 3, 4], evidence, update_every=20), logprobs()
    weights_ENT = gate.weigh(gate.seen(scores_ENT), gate.priors(scores_ENT)[:, :-1, None])
    assert torch.equal(gate.block(scores_ENT), weights_ENT)
    assert torch.equal(gate.mixed(scores_ENT), mix(weights_ENT, scores_ENT.double()))


@pytest.mark.parametrize("update_every", [1, 7, 20, 33, 60, 10**12])
def test_an_updating_prior_does_not_depend_on_how_the_text_is_cut_for_scoring(update_every: int) -> None:
    gate, scores_EX = UpdatingGate([1.0, 2.0, 3.0, 4.0], update_every=update_every), logprobs().flatten(1).double()
    full_X, *others = (mix_scores(gate, scores_EX, size) for size in (60, 20, 13, 1))
    for other_X in others:
        torch.testing.assert_close(other_X, full_X, atol=1e-9, rtol=0)
    for size in (60, 20, 13, 1):
        total = gate.total(as_blocks(scores_EX, size))
        assert total == pytest.approx(float(full_X.sum()), rel=1e-9)


def test_an_expert_that_one_block_ruled_out_can_come_back() -> None:
    scores_ENT = torch.zeros(2, 8, 20)
    scores_ENT[0, :3], scores_ENT[1, 3:] = -60.0, -60.0  # 1200 nats a block, beyond any float's exponent
    gate = build_gate(UpdatingGateConfig(newest_weight=0.7, update_every=20), [1.0, 1.0])
    assert gate.block(scores_ENT)[0, 7, 10].exp() > 0.99


def test_a_cached_prior_is_the_mean_posterior_of_exactly_the_requested_blocks() -> None:
    scores_ENT = logprobs(blocks=12) / 10
    gate = PosteriorGate([1.0] * 4)
    expected = scores_ENT[:, :10].double().sum(-1).softmax(0).mean(1)
    torch.testing.assert_close(estimate_prior(gate, scores_ENT, 10), expected)
    with pytest.raises(MixtureError, match="needs 13 blocks; there are 12"):
        estimate_prior(gate, scores_ENT, 13)


def test_the_posterior_is_bayes_rule_written_out() -> None:
    prior = torch.tensor([0.2, 0.8], dtype=torch.float64)
    scores_ENT = torch.tensor([[[-1.0, -2.0, -3.0]], [[-2.0, -0.5, -1.0]]], dtype=torch.float64)
    prefix = build_gate(PosteriorGateConfig(evidence="prefix"), prior.tolist()).block(scores_ENT)[:, 0, 2].exp()
    last = build_gate(PosteriorGateConfig(evidence="last_token"), prior.tolist()).block(scores_ENT)[:, 0, 2].exp()
    by_prefix = prior * torch.tensor([-3.0, -2.5], dtype=torch.float64).exp()
    by_last = prior * torch.tensor([-2.0, -0.5], dtype=torch.float64).exp()
    torch.testing.assert_close(prefix, by_prefix / by_prefix.sum())
    torch.testing.assert_close(last, by_last / by_last.sum())


@pytest.mark.parametrize("kind", ["posterior", "updating", "fixed"])
def test_of_equal_weights_the_first_are_kept_in_a_stream_as_in_a_block(kind: str) -> None:
    gate = build_gate(gate_type(kind).config(kind, top_k=3), [1.0, 2.0, 1.0, 1.0, 1.0])
    expected_E = torch.tensor([0.25, 0.5, 0.25, 0, 0], dtype=torch.float64)
    torch.testing.assert_close(gate.start().log_weights().exp(), expected_E)
    torch.testing.assert_close(gate.block(torch.zeros(5, 2, 3)).exp(), expected_E[:, None, None].expand(5, 2, 3))


@pytest.mark.parametrize("top_k", [1, 2, 4, 6])
@pytest.mark.parametrize("num_experts", [7, 300])
def test_top_k_keeps_what_sorting_would(top_k: int, num_experts: int) -> None:
    draw = torch.Generator().manual_seed(0)
    log_weights = -torch.randint(1, 5, (num_experts, 3, 40), generator=draw).double()  # many ties
    log_weights[2] = -torch.inf
    best = log_weights.sort(dim=0, descending=True, stable=True).indices[:top_k]
    expected = torch.full_like(log_weights, -torch.inf).scatter(0, best, log_weights.gather(0, best)).log_softmax(0)
    assert torch.equal(keep_top(log_weights, top_k), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_too_small_to_count_does_not_change_the_sum(dtype: torch.dtype) -> None:
    far_E = torch.tensor([-3.0, -3.5, -60.0, -90.0, -720.0, -1e4, -torch.inf], dtype=dtype)
    assert mix(torch.zeros(7, dtype=dtype), far_E) == far_E.logsumexp(0)
    assert mix(torch.zeros(3, dtype=dtype), torch.full((3, 2), -torch.inf, dtype=dtype)).tolist() == [-math.inf] * 2


def test_an_expert_of_weight_zero_may_say_what_is_no_number_and_no_other_may() -> None:
    logprobs_E = torch.tensor([-1.0, math.nan, -2.0])
    assert mix(torch.tensor([0.0, -torch.inf, -torch.inf]), logprobs_E) == -1.0
    assert mix(torch.tensor([0.5, 0.5, 0.0]).log(), logprobs_E).isnan()


def test_mixing_is_over_probabilities() -> None:
    logprobs_EV = torch.tensor([[0.7, 0.3], [0.1, 0.9]]).log()
    mixed_V = mix(torch.tensor([0.25, 0.75]).log(), logprobs_EV).exp()
    torch.testing.assert_close(mixed_V, torch.tensor([0.25, 0.75]))


@pytest.mark.parametrize("weights", [[], [0.0, 0.0], [-1.0, 2.0], [float("nan"), 1.0], [float("inf"), 1.0]])
def test_weights_that_are_none_are_refused(weights: list[float]) -> None:
    with pytest.raises(MixtureError, match="Weights must be"):
        build_gate(PosteriorGateConfig(), weights)


@settings(max_examples=60)
@given(
    st.lists(st.floats(0.01, 100), min_size=2, max_size=9),
    st.integers(0, 10**6),
    st.sampled_from(sorted(GATES)),
    st.integers(1, 40),
)
def test_weights_sum_to_one_whatever_the_prior_and_the_text(
    prior: list[float], seed: int, name: str, length: int
) -> None:
    scores_ENT = logprobs(len(prior), 1, length, seed) * 50
    weights_ENT = weigh(GATES[name](prior), scores_ENT).exp()
    assert ((weights_ENT.sum(0) - 1).abs() < 1e-6).all()
