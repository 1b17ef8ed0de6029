"""Laws of stored scores: they depend only on the text, and mixing them equals mixing the experts.

Shapes: E experts, T positions, X tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from engine.clusters.distances import Distances
from engine.inference.scores import as_blocks, mix_scores, mixed_perplexity, perplexity
from engine.mixing.base import Gate, Stream
from engine.mixing.combine import mix
from engine.mixing.posterior import UpdatingGate
from engine.models.multi_expert import MultiExpertModel
from engine.selfcheck.law import Finding, gap, relative_gap
from engine.selfcheck.test_bed import BLOCK, KEYS, PRIOR, TestBed, every_gate, plain_logprobs

IN_THE_PADDING = -40.0  # nats


def batches_and_padding(bed: TestBed) -> Iterator[Finding]:
    """L9, in shares of the perplexity, from tokens and from sums of blocks; the control has half the context."""
    model = bed.model()
    halves_EX = bed.score(model, block_size=BLOCK // 2)
    batched = [bed.score(model, batch_size) for batch_size in (1, 3)]
    for config in every_gate():
        gate, near = bed.gate(config, PRIOR), bed.distances
        expected = perplexity(mix_scores(gate, bed.scores_EX, BLOCK, near))
        control = _relative_difference(perplexity(mix_scores(gate, halves_EX, BLOCK, near)), expected)
        for other_EX in batched:
            yield Finding(_relative_difference(perplexity(mix_scores(gate, other_EX, BLOCK, near)), expected), control)
        yield Finding(_relative_difference(mixed_perplexity(gate, bed.scores_EX, BLOCK, near), expected), control)
        yield _padding(gate, bed.scores_EX, near, expected)


def _padding(gate: Gate, scores_EX: Tensor, distances: Distances, expected: float) -> Finding:
    """Changes numbers in the padding of the last block; the control changes the number of a token."""
    padded_ENT, size = as_blocks(scores_EX, BLOCK), scores_EX.shape[1]
    other_ENT, token_ENT = padded_ENT.clone(), padded_ENT.clone()
    other_ENT[:, -1, size % BLOCK :] = token_ENT[:, -1, 0] = IN_THE_PADDING
    other, token = (
        perplexity(mix(gate.block(blocks_ENT, distances), blocks_ENT.double()).flatten()[:size])
        for blocks_ENT in (other_ENT, token_ENT)
    )
    return Finding(_relative_difference(other, expected), _relative_difference(token, expected))


def stored_is_live(bed: TestBed) -> Iterator[Finding]:
    """L19, token by token in every mode; the control mixes the stored scores with another prior."""
    model = bed.model()
    for config in every_gate():
        gate, other = bed.gate(config, PRIOR), bed.gate(config, PRIOR[::-1])
        live_X = _live(bed, model, gate)
        stored_X, other_X = (mix_scores(one, bed.scores_EX, BLOCK, bed.distances) for one in (gate, other))
        yield Finding(relative_gap(stored_X, live_X), gap(other_X, live_X))


def _live(bed: TestBed, model: MultiExpertModel, gate: Gate) -> Tensor:
    """The mixture's log-likelihood [X] of every token, from whole distributions, block after block.

    The experts read each block by itself; a gate that looks at text has read what stands before it.
    """
    ids, logprobs, stream = bed.array.tolist(), [], bed.stream(gate)
    for start in range(0, len(ids) - 1, BLOCK):
        block = ids[start : start + BLOCK + 1]
        logprobs_ETV = plain_logprobs(model, KEYS, block[:-1]).cpu().double()
        stream = stream if isinstance(gate, UpdatingGate) else _after(gate, ids[: start + 1])
        for position, target in enumerate(block[1:]):
            logprobs.append(mix(stream.log_weights(), logprobs_ETV[:, position])[target])
            stream.observe(logprobs_ETV[:, position, target], target)
    return torch.stack(logprobs)


def _after(gate: Gate, ids: Sequence[int]) -> Stream:
    """A fresh stream that has read a text, which is no evidence."""
    stream = gate.start()
    for token in ids:
        stream.begin(token)
    return stream


def _relative_difference(first: float, second: float) -> float:
    return abs(first / second - 1)
