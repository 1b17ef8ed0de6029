"""Laws of stored scores: they depend on nothing but the text, and mixing them is mixing the experts themselves.

Shapes: E experts, T positions, X tokens.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from engine.clusters.distances import Distances
from engine.inference.scores import as_blocks, mix_scores, mixed_perplexity, perplexity
from engine.mixing.base import Gate
from engine.mixing.combine import mix
from engine.mixing.posterior import UpdatingGate
from engine.models.multi_expert import MultiExpertModel
from engine.selfcheck.law import Finding, gap, relative_gap
from engine.selfcheck.test_bed import BLOCK, KEYS, PRIOR, TestBed, every_gate, plain_logprobs

IN_THE_PADDING = -40.0  # nats


def batches_and_padding(ground: TestBed) -> Iterator[Finding]:
    """L9, in shares of the perplexity, from tokens and from sums of blocks; the control has half the context."""
    model = ground.model()
    halves_EX = ground.score(model, block_size=BLOCK // 2)
    batched = [ground.score(model, batch_size) for batch_size in (1, 3)]
    for config in every_gate():
        gate, near = ground.gate(config, PRIOR), ground.distances
        whole = perplexity(mix_scores(gate, ground.scores_EX, BLOCK, near))
        control = _apart(perplexity(mix_scores(gate, halves_EX, BLOCK, near)), whole)
        for other_EX in batched:
            yield Finding(_apart(perplexity(mix_scores(gate, other_EX, BLOCK, near)), whole), control)
        yield Finding(_apart(mixed_perplexity(gate, ground.scores_EX, BLOCK, near), whole), control)
        yield _padding(gate, ground.scores_EX, near, whole)


def _padding(gate: Gate, scores_EX: Tensor, distances: Distances, whole: float) -> Finding:
    """Other numbers in the padding of the last block; the control puts such a number in the place of a token."""
    padded_ENT, size = as_blocks(scores_EX, BLOCK), scores_EX.shape[1]
    other_ENT, token_ENT = padded_ENT.clone(), padded_ENT.clone()
    other_ENT[:, -1, size % BLOCK :] = token_ENT[:, -1, 0] = IN_THE_PADDING
    other, token = (
        perplexity(mix(gate.block(blocks_ENT, distances), blocks_ENT.double()).flatten()[:size])
        for blocks_ENT in (other_ENT, token_ENT)
    )
    return Finding(_apart(other, whole), _apart(token, whole))


def stored_is_live(ground: TestBed) -> Iterator[Finding]:
    """L19, token by token in every mode; the control mixes the stored scores by another prior."""
    model = ground.model()
    for config in every_gate():
        gate, other = ground.gate(config, PRIOR), ground.gate(config, PRIOR[::-1])
        live_X = _live(ground, model, gate)
        stored_X, other_X = (mix_scores(one, ground.scores_EX, BLOCK, ground.distances) for one in (gate, other))
        yield Finding(relative_gap(stored_X, live_X), gap(other_X, live_X))


def _live(ground: TestBed, model: MultiExpertModel, gate: Gate) -> Tensor:
    """The mixture's log-likelihood [X] of every token, from whole distributions, block after block."""
    ids, found, stream = ground.array.tolist(), [], ground.begun(gate)
    for start in range(0, len(ids) - 1, BLOCK):
        block = ids[start : start + BLOCK + 1]
        logprobs_ETV = plain_logprobs(model, KEYS, block[:-1]).cpu().double()
        stream = stream if isinstance(gate, UpdatingGate) else ground.begun(gate, start)
        for position, target in enumerate(block[1:]):
            found.append(mix(stream.log_weights(), logprobs_ETV[:, position])[target])
            stream.observe(logprobs_ETV[:, position, target], target)
    return torch.stack(found)


def _apart(one: float, other: float) -> float:
    return abs(one / other - 1)
