"""Laws of gates: the weights of every gate on real scores, and the resulting mixtures.

Shapes: E experts, N blocks, T positions, X tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from engine.inference.mixing import Mixing
from engine.inference.scores import as_blocks, mix_scores
from engine.mixing.base import Gate, Stream, mix
from engine.mixing.gate_type import GateConfig
from engine.mixing.posterior import PosteriorGate, PosteriorStream
from engine.selfcheck.law import LawFinding, gap, worst
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


def all_weight_on_one(bed: TestBed) -> Iterator[LawFinding]:
    """L1, from scores in every mode and live in every family; the control weighs all experts equally."""
    for config in every_gate():
        mixed_X = _mixture(bed, config, (0, 0, 1, 0), bed.scores_EX)
        control = gap(_mixture(bed, config, EVEN, bed.scores_EX), bed.scores_EX[2])
        yield LawFinding(gap(mixed_X, bed.scores_EX[2]), control)
    for family in FAMILIES:
        model = bed.model(family)
        single_V = plain_logprobs(model, KEYS, bed.ids)[2, -1]
        one_V, even_V = (mixed_logprobs(model, KEYS, plain_gate(w), bed.ids) for w in ((0, 0, 1, 0), EVEN))
        yield LawFinding(gap(one_V, single_V), gap(even_V, single_V))


def single_expert(bed: TestBed) -> Iterator[LawFinding]:
    """L2; the control is a mixture of two."""
    for config in every_gate():
        one_X = _mixture(bed, config, [1.0], bed.scores_EX[:1])
        two_X = _mixture(bed, config, [1.0, 1.0], bed.scores_EX[:2])
        yield LawFinding(gap(one_X, bed.scores_EX[0]), gap(two_X, bed.scores_EX[0]))
    for family in FAMILIES:
        model = bed.model(family)
        single_V = plain_logprobs(model, ["law"], bed.ids)[0, -1]
        one_V = mixed_logprobs(model, ["law"], plain_gate([1.0]), bed.ids)
        two_V = mixed_logprobs(model, ["law", "code"], plain_gate([1.0, 1.0]), bed.ids)
        yield LawFinding(gap(one_V, single_V), gap(two_V, single_V))


def equal_shares_are_uniform(bed: TestBed) -> Iterator[LawFinding]:
    """L3, for any number of experts (1/7 has no exact binary form). The control is another prior."""
    for config in every_gate():
        for num_experts in range(2, MOST_EXPERTS + 1):
            some = torch.arange(num_experts) % len(KEYS)
            blocks_ENT = as_blocks(bed.scores_EX[some], BLOCK)
            priors = ([1 / num_experts] * num_experts, [1.0] * num_experts, [*[1.0] * (num_experts - 1), 3.0])
            cached, uniform, other = (bed.gate(config, prior).block(blocks_ENT, bed.distances) for prior in priors)
            yield LawFinding(gap(cached, uniform), gap(other, uniform))


def identical_experts(bed: TestBed) -> Iterator[LawFinding]:
    """L4; the control has different experts."""
    prior, same, others = (1, 5, 2, 9), bed.model(noise=0.0), bed.model()
    same_EX = bed.score(same)
    for config in every_gate():
        mixed_X, other_X = (_mixture(bed, config, prior, scores_EX) for scores_EX in (same_EX, bed.scores_EX))
        yield LawFinding(gap(mixed_X, same_EX[0]), gap(other_X, bed.scores_EX[0]))
        live, other = (mixed_logprobs(model, KEYS, bed.gate(config, prior), bed.ids).exp() for model in (same, others))
        single_live, single_other = (plain_logprobs(model, ["law"], bed.ids)[0, -1].exp() for model in (same, others))
        yield LawFinding(gap(live, single_live), gap(other, single_other))


def weights_sum_to_one(bed: TestBed) -> Iterator[LawFinding]:
    """L5, in blocks, in a stream, live and inside an expert with parts; the control omits the largest weight."""
    blocks_ENT, model = as_blocks(bed.scores_EX, BLOCK), bed.model()
    for config in every_gate():
        gate = bed.gate(config, PRIOR)
        live = [log_weights_E.exp() for log_weights_E, _ in Mixing(model, KEYS, gate).read(bed.ids)]
        blocks, streamed = (
            gate.block(blocks_ENT, bed.distances).exp(),
            _stream_weights(bed, bed.stream(gate), blocks_ENT[:, 0]),
        )
        for weights in (blocks, streamed, torch.stack(live, 1)):
            sums, without = weights.sum(0), weights.sum(0) - weights.amax(0)
            yield LawFinding(gap(sums, torch.ones_like(sums)), gap(without, torch.ones_like(sums)))
    yield from gates_sum_to_one(bed)


def permuted_experts(bed: TestBed) -> Iterator[LawFinding]:
    """L6; the control permutes the experts but not their prior."""
    order = [2, 0, 3, 1]
    permuted = [PRIOR[i] for i in order]
    for config in every_gate():
        moved, base, odd = (
            _weigh(bed.gate(config, *arguments), bed, scores_EX)
            for arguments, scores_EX in (
                ((permuted, order), bed.scores_EX[order]),
                ((PRIOR,), bed.scores_EX),
                ((PRIOR,), bed.scores_EX[order]),
            )
        )
        deviation = worst([gap(moved[0], base[0][order]), gap(moved[1], base[1])])
        yield LawFinding(deviation, min(gap(odd[0], base[0][order]), gap(odd[1], base[1])))


def impossible_tokens(bed: TestBed) -> Iterator[LawFinding]:
    """L14: the number of NaNs; the control is Bayes' rule without a floor."""
    scores_ENT = as_blocks(bed.scores_EX.half(), BLOCK).float()
    scores_ENT[:, :, 2] = -torch.inf
    scores_ENT[:3, :, 3] = HALF_LEAST
    naive_ENT = scores_ENT.cumsum(-1).softmax(0)
    for config in every_gate():
        gate = bed.gate(config, EVEN)
        log_weights_ENT = gate.block(scores_ENT, bed.distances)
        streamed = _stream_weights(bed, bed.stream(gate), scores_ENT[:, 0])
        tensors = (log_weights_ENT, mix(log_weights_ENT, scores_ENT.double()), streamed)
        yield LawFinding(sum(int(one.isnan().sum()) for one in tensors), int(naive_ENT.isnan().sum()))


def cut_streams(bed: TestBed) -> Iterator[LawFinding]:
    """L15, cut in the second block, and a stream against a full block; the control resumes with another prior."""
    scores_ET, cut = bed.scores_EX[:, : 3 * BLOCK], BLOCK + BLOCK // 2
    for config in every_gate():
        gate, elsewhere = bed.gate(config, PRIOR), bed.gate(config, PRIOR[::-1])
        full_ET, stream = _stream_weights(bed, bed.stream(gate), scores_ET), bed.stream(gate)
        first_ET = _stream_weights(bed, stream, scores_ET[:, :cut])
        resumed_ET = torch.cat(
            [first_ET, _stream_weights(bed, _resume(bed, gate, stream, cut), scores_ET[:, cut:], cut)], 1
        )
        anew_ET = torch.cat([first_ET, _stream_weights(bed, bed.stream(elsewhere, cut), scores_ET[:, cut:], cut)], 1)
        yield LawFinding(gap(resumed_ET, full_ET), gap(anew_ET, full_ET))
        block_ET, other_ET = (
            one.block(scores_ET[:, None, :BLOCK], bed.distances)[:, 0].exp() for one in (gate, elsewhere)
        )
        yield LawFinding(gap(full_ET[:, :BLOCK], block_ET), gap(full_ET[:, :BLOCK], other_ET))


def _resume(bed: TestBed, gate: Gate, stream: Stream, cut: int) -> Stream:
    """A new stream with the belief and the text of the old one."""
    if isinstance(gate, PosteriorGate) and isinstance(stream, PosteriorStream):
        resumed: Stream = gate.start(stream.belief)
    else:
        resumed = gate.start()
    for token in bed.array[: cut + 1].tolist():
        resumed.begin(token)
    return resumed


def _mixture(bed: TestBed, config: GateConfig, weights: Sequence[float], scores_EX: Tensor) -> Tensor:
    return mix_scores(bed.gate(config, weights), scores_EX, BLOCK, bed.distances)


def _weigh(gate: Gate, bed: TestBed, scores_EX: Tensor) -> tuple[Tensor, Tensor]:
    """The weights [E, N, T] and the mixture's log-likelihoods [X] of the test text."""
    weights_ENT = gate.block(as_blocks(scores_EX, BLOCK), bed.distances).exp()
    return weights_ENT, mix_scores(gate, scores_EX, BLOCK, bed.distances)


def _stream_weights(bed: TestBed, stream: Stream, scores_ET: Tensor, first: int = 0) -> Tensor:
    """The weights [E, T] of a stream before each token of the test text, from position `first` on."""
    weights = []
    for position, scores_E in enumerate(scores_ET.unbind(1), first + 1):
        weights.append(stream.log_weights().exp())
        stream.observe(scores_E, int(bed.array[position]))
    return torch.stack(weights, 1)
