"""Losses on domains that are watched during a training (DEMix §6).

Shapes: E experts, N blocks, X tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from engine.errors import TrainingError
from engine.inference.scores import Floats, as_blocks, score_text
from engine.mixing.base import Gate
from engine.models.expert_model import ExpertModel
from engine.text.blocks import COUNTED, Tokens
from engine.text.eval_sample import EvalSample, evenly_spaced
from engine.training.data import no_answers

if TYPE_CHECKING:
    from engine.clusters.distances import Distances


def watched_blocks(name: str, tokens: Tokens, block_size: int, num_blocks: int) -> EvalSample:
    """Blocks of a domain's held-out text. Raises TrainingError when there is no full block."""
    if tokens.num_blocks(block_size) < 1:
        raise TrainingError(
            f"The held-out text of domain “{name}” has {len(tokens)} tokens, less than one block of {block_size}.",
            "Watch another domain, or choose a smaller block size.",
        )
    sampled = np.asarray(tokens.sampled_blocks(block_size), dtype=np.int64)
    text = EvalSample(tokens, block_size, sampled[evenly_spaced(len(sampled), num_blocks)] * block_size)
    marks_X = text.marks_X
    if marks_X is not None and COUNTED not in marks_X:
        raise no_answers(name)
    return text


def losses_of(
    model: ExpertModel, key: str, texts: Mapping[str, EvalSample], *, in_turn: bool = False
) -> dict[str, float]:
    """Mean loss (nats per token) of each text under the model with one of its experts.

    `in_turn` computes one forward pass at a time, for models with experts in other processes.
    """
    return {name: _loss(score_text(model, key, text, in_turn=in_turn), text) for name, text in texts.items()}


def _loss(logprobs_X: Floats, text: EvalSample) -> float:
    """The mean over the tokens that count."""
    marks_X = text.marks_X
    return -float((logprobs_X if marks_X is None else logprobs_X[marks_X == COUNTED]).mean())


def losses_mixed(
    gate: Gate,
    others: Mapping[str, Tensor],
    model: ExpertModel,
    key: str,
    texts: Mapping[str, EvalSample],
    distances: Mapping[str, Distances],
) -> dict[str, float]:
    """Mean loss (nats per token) of each text under a mixture whose last expert is the model's.

    `others` holds the log-likelihoods [E, X] of each text under the other experts, `distances` the cluster distances
    for a gate that needs them.
    """
    losses = {}
    for name, text in texts.items():
        newest_1X = torch.from_numpy(score_text(model, key, text))[None]
        blocks_ENT = as_blocks(torch.cat([others[name], newest_1X]), text.block_size)
        if text.tokens.marks is None:
            losses[name] = -gate.total(blocks_ENT, distances.get(name)) / newest_1X.numel()
        else:
            mixed_X = gate.mixed(blocks_ENT, distances.get(name)).flatten()[: newest_1X.numel()]
            losses[name] = _loss(mixed_X.numpy(), text)
    return losses
