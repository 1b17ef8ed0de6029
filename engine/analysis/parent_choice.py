"""Choice of the parent expert for a new domain (DEMix §6).

Shapes: E experts, X tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import torch
from torch import Tensor

from engine.config import PAPER_BLOCKS, AdaptingConfig, TrainingConfig, adapting_rate
from engine.errors import TrainingError
from engine.events import Progress
from engine.inference.ensemble import Ensemble, Group, Models, as_ensemble
from engine.inference.scores import score_text
from engine.mixing.posterior import PosteriorGate, end_of_block_posteriors
from engine.text.blocks import EvalSample, Tokens


@dataclass(frozen=True)
class Nearest:
    """The expert with the largest mean end-of-block posterior on the sample, and all posteriors."""

    key: str
    posterior: dict[str, float]
    num_blocks: int


def score_each(ensemble: Ensemble, text: EvalSample) -> Iterator[tuple[str, Tensor]]:
    """Yields each expert, base by base, with its log-likelihood [X] of every token."""
    for group in ensemble.groups:
        yield from _score_group(group, text)  # its model is freed before the next is loaded


def _score_group(group: Group, text: EvalSample) -> Iterator[tuple[str, Tensor]]:
    model = group.model()
    for key in group.keys:
        yield key, torch.from_numpy(score_text(model, key, text))


def find_nearest(
    models: Models,
    keys: Sequence[str],
    sample: Tokens,
    block_size: int,
    num_blocks: int = PAPER_BLOCKS,
    most_blocks: int | None = None,
) -> Iterator[Progress | Nearest]:
    """Yields progress while each expert scores the sample, then one Nearest.

    The posterior starts from a uniform prior in every block; `sample` must have at least one block. One base is in
    memory at a time if its group loads it on demand. Of `num_blocks` a probe scores at most `most_blocks`.
    """
    text = EvalSample.of_blocks(sample, block_size, min(num_blocks, most_blocks or num_blocks))
    share = len(text.starts_N) / min(num_blocks, sample.num_blocks(block_size))
    progress = partial(Progress, total=len(keys), unit="experts", note="looking for the nearest parent", is_first=True)
    scores: dict[str, Tensor] = {}
    for group in as_ensemble(models, keys).groups:
        group.model()  # so that loading it is not part of the scoring
        yield progress(len(scores))
        for key, scores_X in _score_group(group, text):
            scores[key] = scores_X.view(-1, block_size)
            yield progress(len(scores), share=share)
    scores_ENT = torch.stack([scores[key] for key in keys])
    posterior_E = end_of_block_posteriors(PosteriorGate([1.0] * len(keys)), scores_ENT).mean(1)
    shares = dict(zip(keys, posterior_E.tolist(), strict=True))
    yield Nearest(keys[int(posterior_E.argmax())], shares, len(text.starts_N))


def with_rate(config: AdaptingConfig, first_rate: float | None) -> TrainingConfig:
    """The config with a learning rate: the given one, or a tenth of `first_rate` (§6.1).

    `first_rate` is that of the first expert in the lineage: a tenth of an adapted parent's rate would soon learn
    nothing. Raises TrainingError when neither rate is known.
    """
    rate = config.learning_rate
    if rate is None and first_rate is not None:
        rate = adapting_rate(first_rate)
    if rate is None:
        raise TrainingError(
            "The learning rate of the first expert in the parent's lineage is unknown, so there is no default.",
            "Set a learning rate.",
        )
    return TrainingConfig(**{**asdict(config), "learning_rate": rate})
