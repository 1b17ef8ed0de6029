"""Finding the parent of a new expert (DEMix §6): the posterior on held-out text of its domain proposes the nearest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.events import Progress
from engine.mixing.posterior import PosteriorGate, end_of_block_posteriors
from engine.models.demix import DemixModel
from engine.scores import score_span
from engine.text.blocks import Tokens

PAPER_BLOCKS = 100  # §5.1: “100 sequences” of development data


@dataclass(frozen=True)
class Nearest:
    """Mean end-of-block posterior of each expert on the sample, and which is the largest."""

    key: str
    posterior: dict[str, float]
    num_blocks: int


def find_nearest(
    model: DemixModel, keys: Sequence[str], sample: Tokens, block_size: int, num_blocks: int = PAPER_BLOCKS
) -> Iterator[Progress | Nearest]:
    """Progress while the sample is scored under each expert, then one Nearest.

    The posterior starts from a uniform prior in every block; `sample` must hold at least one block.
    """
    count = min(num_blocks, sample.num_blocks(block_size))
    scores: list[Tensor] = []
    for number, key in enumerate(keys):
        span = sample.array[: count * block_size + 1]
        scores.append(torch.from_numpy(score_span(model, key, span, block_size)).view(count, block_size))
        yield Progress(number + 1, len(keys), "experts", "looking for the nearest parent")
    posterior_E = end_of_block_posteriors(PosteriorGate([1.0] * len(keys)), torch.stack(scores)).mean(1)
    shares = dict(zip(keys, posterior_E.tolist(), strict=True))
    yield Nearest(keys[int(posterior_E.argmax())], shares, count)
