"""Made-up losses whose answers are known: systems by nats per token, plus the noise of documents and seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine.statistics.estimates import Loss
from workbench_studies.core.averages import Place

BLOCKS, TOKENS = 60, 128


def losses_of(
    nats: Mapping[Any, float],
    domains: Sequence[str],
    *,
    seeds: int = 2,
    noise: float = 0.2,
    own: float = 0.01,
    chance: int = 0,
    num_documents: int = BLOCKS,
) -> dict[Place, Loss]:
    """Losses of systems by their mean nats per token: documents differ by `noise`, alike for all; each system by `own`.

    Of a document all blocks are alike in what differs between systems, too.
    """
    draw = np.random.default_rng(chance)
    of_N = np.arange(BLOCKS) * num_documents // BLOCKS
    losses: dict[Place, Loss] = {}
    for domain in domains:
        text_N = draw.normal(0, noise, num_documents)[of_N]
        for system, mean in nats.items():
            for seed in range(seeds):
                each_N = mean + text_N + draw.normal(0, own, num_documents)[of_N]
                losses[system, seed, domain] = Loss(each_N * TOKENS, np.full(BLOCKS, float(TOKENS)), of_N)
    return losses
