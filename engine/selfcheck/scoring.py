"""Laws of stored scores: they depend on nothing but the text, and mixing them is mixing the experts themselves.

Shapes: E experts, T positions, X tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from engine.mixing.base import Gate
from engine.mixing.combine import mix
from engine.mixing.gates import make_gate
from engine.mixing.posterior import UpdatingGate
from engine.models.demix import DemixModel
from engine.scores import as_blocks, mix_scores, mixed_perplexity, perplexity
from engine.selfcheck.ground import BLOCK, KEYS, PRIOR, Ground, every_gate, plain_logprobs
from engine.selfcheck.law import Finding, gap, relative_gap

IN_THE_PADDING = -40.0  # nats


def batches_and_padding(ground: Ground) -> Iterator[Finding]:
    """L9, in shares of the perplexity, from tokens and from sums of blocks; the control has half the context."""
    model = ground.model()
    halves_EX = ground.score(model, block_size=BLOCK // 2)
    batched = [ground.score(model, batch_size) for batch_size in (1, 3)]
    for config in every_gate():
        gate = make_gate(config, PRIOR)
        whole = perplexity(mix_scores(gate, ground.scores_EX, BLOCK))
        control = _apart(perplexity(mix_scores(gate, halves_EX, BLOCK // 2)), whole)
        for other_EX in batched:
            yield Finding(_apart(perplexity(mix_scores(gate, other_EX, BLOCK)), whole), control)
        yield Finding(_apart(mixed_perplexity(gate, ground.scores_EX, BLOCK), whole), control)
        yield _padding(gate, ground.scores_EX, whole)


def _padding(gate: Gate, scores_EX: Tensor, whole: float) -> Finding:
    """Other numbers in the padding of the last block; the control puts such a number in the place of a token."""
    padded_ENT, size = as_blocks(scores_EX, BLOCK), scores_EX.shape[1]
    other_ENT, token_ENT = padded_ENT.clone(), padded_ENT.clone()
    other_ENT[:, -1, size % BLOCK :] = token_ENT[:, -1, 0] = IN_THE_PADDING
    other, token = (
        perplexity(mix(gate.block(blocks_ENT), blocks_ENT.double()).flatten()[:size])
        for blocks_ENT in (other_ENT, token_ENT)
    )
    return Finding(_apart(other, whole), _apart(token, whole))


def stored_is_live(ground: Ground) -> Iterator[Finding]:
    """L19, token by token in every mode; the control mixes the stored scores by another prior."""
    model = ground.model()
    for config in every_gate():
        gate, other = make_gate(config, PRIOR), make_gate(config, PRIOR[::-1])
        live_X = _live(model, gate, [int(one) for one in ground.array])
        stored_X, other_X = (mix_scores(one, ground.scores_EX, BLOCK) for one in (gate, other))
        yield Finding(relative_gap(stored_X, live_X), gap(other_X, live_X))


def _live(model: DemixModel, gate: Gate, ids: Sequence[int]) -> Tensor:
    """The mixture's log-likelihood [X] of every token, from whole distributions, block after block."""
    found, stream = [], gate.start()
    for start in range(0, len(ids) - 1, BLOCK):
        block = ids[start : start + BLOCK + 1]
        logprobs_ETV = plain_logprobs(model, KEYS, block[:-1]).cpu().double()
        stream = stream if isinstance(gate, UpdatingGate) else gate.start()
        for position, target in enumerate(block[1:]):
            found.append(mix(stream.log_weights(), logprobs_ETV[:, position])[target])
            stream.observe(logprobs_ETV[:, position, target])
    return torch.stack(found)


def _apart(one: float, other: float) -> float:
    return abs(one / other - 1)
