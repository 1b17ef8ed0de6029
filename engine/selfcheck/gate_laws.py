"""Laws of weights: what every gate must do on real scores, and the mixture that is made of them.

Shapes: E experts, N blocks, T positions, X tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from engine.inference.generate import Mixing
from engine.inference.scores import as_blocks, mix_scores
from engine.mixing.base import Gate, Stream
from engine.mixing.combine import mix
from engine.mixing.gate_type import GateConfig
from engine.mixing.posterior import PosteriorGate, PosteriorStream
from engine.selfcheck.law import Finding, gap, worst
from engine.selfcheck.mode_laws import gates_sum_to_one
from engine.selfcheck.test_bed import (
    BLOCK,
    EVEN,
    FAMILIES,
    KEYS,
    PRIOR,
    TestBed,
    every_gate,
    mixed_logprobs,
    plain_gate,
    plain_logprobs,
)

MOST_EXPERTS = 64
HALF_LEAST = -65504.0  # the lowest number of half precision


def all_weight_on_one(ground: TestBed) -> Iterator[Finding]:
    """L1, from scores in every mode and live in every family; the control weighs all experts alike."""
    for config in every_gate():
        mixed_X = _mixture(ground, config, (0, 0, 1, 0), ground.scores_EX)
        control = gap(_mixture(ground, config, EVEN, ground.scores_EX), ground.scores_EX[2])
        yield Finding(gap(mixed_X, ground.scores_EX[2]), control)
    for family in FAMILIES:
        model = ground.model(family)
        alone_V = plain_logprobs(model, KEYS, ground.ids)[2, -1]
        one_V, even_V = (mixed_logprobs(model, KEYS, plain_gate(w), ground.ids) for w in ((0, 0, 1, 0), EVEN))
        yield Finding(gap(one_V, alone_V), gap(even_V, alone_V))


def one_expert_alone(ground: TestBed) -> Iterator[Finding]:
    """L2; the control is a mixture of two."""
    for config in every_gate():
        one_X = _mixture(ground, config, [1.0], ground.scores_EX[:1])
        two_X = _mixture(ground, config, [1.0, 1.0], ground.scores_EX[:2])
        yield Finding(gap(one_X, ground.scores_EX[0]), gap(two_X, ground.scores_EX[0]))
    for family in FAMILIES:
        model = ground.model(family)
        alone_V = plain_logprobs(model, ["law"], ground.ids)[0, -1]
        one_V = mixed_logprobs(model, ["law"], plain_gate([1.0]), ground.ids)
        two_V = mixed_logprobs(model, ["law", "code"], plain_gate([1.0, 1.0]), ground.ids)
        yield Finding(gap(one_V, alone_V), gap(two_V, alone_V))


def equal_shares_are_uniform(ground: TestBed) -> Iterator[Finding]:
    """L3, for any number of experts: 1/7 has no exact binary number. The control is another prior."""
    for config in every_gate():
        for num_experts in range(2, MOST_EXPERTS + 1):
            some = torch.arange(num_experts) % len(KEYS)
            blocks_ENT = as_blocks(ground.scores_EX[some], BLOCK)
            priors = ([1 / num_experts] * num_experts, [1.0] * num_experts, [*[1.0] * (num_experts - 1), 3.0])
            cached, uniform, other = (
                ground.gate(config, prior).block(blocks_ENT, ground.distances) for prior in priors
            )
            yield Finding(gap(cached, uniform), gap(other, uniform))


def identical_experts(ground: TestBed) -> Iterator[Finding]:
    """L4; the control has experts that differ."""
    prior, same, others = (1, 5, 2, 9), ground.model(noise=0.0), ground.model()
    same_EX = ground.score(same)
    for config in every_gate():
        mixed_X, other_X = (_mixture(ground, config, prior, scores_EX) for scores_EX in (same_EX, ground.scores_EX))
        yield Finding(gap(mixed_X, same_EX[0]), gap(other_X, ground.scores_EX[0]))
        live, other = (
            mixed_logprobs(one, KEYS, ground.gate(config, prior), ground.ids).exp() for one in (same, others)
        )
        alone, one = (plain_logprobs(model, ["law"], ground.ids)[0, -1].exp() for model in (same, others))
        yield Finding(gap(live, alone), gap(other, one))


def weights_sum_to_one(ground: TestBed) -> Iterator[Finding]:
    """L5, in blocks, in a stream, live and inside an expert of MoDE; the control leaves out the largest weight."""
    blocks_ENT, model = as_blocks(ground.scores_EX, BLOCK), ground.model()
    for config in every_gate():
        gate = ground.gate(config, PRIOR)
        live = [log_weights_E.exp() for log_weights_E, _ in Mixing(model, KEYS, gate).read(ground.ids)]
        blocks, said = (
            gate.block(blocks_ENT, ground.distances).exp(),
            _said(ground, ground.begun(gate), blocks_ENT[:, 0]),
        )
        for weights in (blocks, said, torch.stack(live, 1)):
            sums, without = weights.sum(0), weights.sum(0) - weights.amax(0)
            yield Finding(gap(sums, torch.ones_like(sums)), gap(without, torch.ones_like(sums)))
    yield from gates_sum_to_one(ground)


def permuted_experts(ground: TestBed) -> Iterator[Finding]:
    """L6; the control permutes the experts and leaves their prior where it was."""
    order = [2, 0, 3, 1]
    permuted = [PRIOR[i] for i in order]
    for config in every_gate():
        there, here, odd = (
            _weighed(ground.gate(config, *told), ground, scores_EX)
            for told, scores_EX in (
                ((permuted, order), ground.scores_EX[order]),
                ((PRIOR,), ground.scores_EX),
                ((PRIOR,), ground.scores_EX[order]),
            )
        )
        deviation = worst([gap(there[0], here[0][order]), gap(there[1], here[1])])
        yield Finding(deviation, min(gap(odd[0], here[0][order]), gap(odd[1], here[1])))


def impossible_tokens(ground: TestBed) -> Iterator[Finding]:
    """L14: how many numbers are none; the control is Bayes' rule written out without a floor."""
    scores_ENT = as_blocks(ground.scores_EX.half(), BLOCK).float()
    scores_ENT[:, :, 2] = -torch.inf
    scores_ENT[:3, :, 3] = HALF_LEAST
    naive_ENT = scores_ENT.cumsum(-1).softmax(0)
    for config in every_gate():
        gate = ground.gate(config, EVEN)
        log_weights_ENT = gate.block(scores_ENT, ground.distances)
        said = _said(ground, ground.begun(gate), scores_ENT[:, 0])
        found = (log_weights_ENT, mix(log_weights_ENT, scores_ENT.double()), said)
        yield Finding(sum(int(one.isnan().sum()) for one in found), int(naive_ENT.isnan().sum()))


def cut_streams(ground: TestBed) -> Iterator[Finding]:
    """L15, cut in the second block, and a stream against the block at once; the control begins anew elsewhere."""
    scores_ET, cut = ground.scores_EX[:, : 3 * BLOCK], BLOCK + BLOCK // 2
    for config in every_gate():
        gate, elsewhere = ground.gate(config, PRIOR), ground.gate(config, PRIOR[::-1])
        whole_ET, stream = _said(ground, ground.begun(gate), scores_ET), ground.begun(gate)
        first_ET = _said(ground, stream, scores_ET[:, :cut])
        resumed_ET = torch.cat(
            [first_ET, _said(ground, _resumed(ground, gate, stream, cut), scores_ET[:, cut:], cut)], 1
        )
        anew_ET = torch.cat([first_ET, _said(ground, ground.begun(elsewhere, cut), scores_ET[:, cut:], cut)], 1)
        yield Finding(gap(resumed_ET, whole_ET), gap(anew_ET, whole_ET))
        block_ET, other_ET = (
            one.block(scores_ET[:, None, :BLOCK], ground.distances)[:, 0].exp() for one in (gate, elsewhere)
        )
        yield Finding(gap(whole_ET[:, :BLOCK], block_ET), gap(whole_ET[:, :BLOCK], other_ET))


def _resumed(ground: TestBed, gate: Gate, stream: Stream, cut: int) -> Stream:
    """A new stream from all that the old one knows: its belief, and the text."""
    if isinstance(gate, PosteriorGate) and isinstance(stream, PosteriorStream):
        resumed: Stream = gate.start(stream.belief)
    else:
        resumed = gate.start()
    for token in ground.array[: cut + 1].tolist():
        resumed.begin(token)
    return resumed


def _mixture(ground: TestBed, config: GateConfig, weights: Sequence[float], scores_EX: Tensor) -> Tensor:
    return mix_scores(ground.gate(config, weights), scores_EX, BLOCK, ground.distances)


def _weighed(gate: Gate, ground: TestBed, scores_EX: Tensor) -> tuple[Tensor, Tensor]:
    """The weights [E, N, T] and the mixture's log-likelihoods [X] of the ground's text."""
    weights_ENT = gate.block(as_blocks(scores_EX, BLOCK), ground.distances).exp()
    return weights_ENT, mix_scores(gate, scores_EX, BLOCK, ground.distances)


def _said(ground: TestBed, stream: Stream, scores_ET: Tensor, first: int = 0) -> Tensor:
    """The weights [E, T] that a stream gives before each token of the ground's text, from one of its tokens on."""
    weights = []
    for position, scores_E in enumerate(scores_ET.unbind(1), first + 1):
        weights.append(stream.log_weights().exp())
        stream.observe(scores_E, int(ground.array[position]))
    return torch.stack(weights, 1)
