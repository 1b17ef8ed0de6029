"""Made-up worlds whose answers are known: systems with losses in nats per token, plus the noise of text and seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from workbench.replications.bootstrap import Floats, Loss, Place, Resampled
from workbench.replications.evidence import Evidence, Overlap
from workbench.replications.scored import Belief, Measured, Subject
from workbench.replications.sizes import SIZES

DOMAINS, NOVEL = ("law", "code", "sea", "kitchen"), ("tweets", "poems")
BLOCKS, TOKENS = 60, 128


def losses_of(
    nats: Mapping[str, float], domains: Sequence[str], *, seeds: int = 2, noise: float = 0.2, own: float = 0.01,
    chance: int = 0,
) -> dict[Place, Loss]:  # fmt: skip
    """Losses of systems by their mean nats per token: texts differ by `noise`, alike for all; each system by `own`."""
    draw = np.random.default_rng(chance)
    losses: dict[Place, Loss] = {}
    for domain in domains:
        text_N = draw.normal(0, noise, BLOCKS)
        for system, mean in nats.items():
            for seed in range(seeds):
                each_N = mean + text_N + draw.normal(0, own, BLOCKS)
                losses[system, seed, domain] = Loss(each_N * TOKENS, np.full(BLOCKS, float(TOKENS)))
    return losses


def evidence_of(
    losses: Mapping[Place, Loss], *, beliefs: Mapping[tuple[int, str], Belief] | None = None,
    overlap: Overlap | None = None, removed: Sequence[str] = (), seeds: int = 2,
) -> Evidence:  # fmt: skip
    """A replication of size tiny that measured these."""
    subject = Subject("rep", seeds, DOMAINS, NOVEL, tuple(removed), replace(SIZES["tiny"]))
    measured = Measured(dict(losses), dict(beliefs or {}))
    return Evidence(subject, measured, Resampled(measured.losses, num_draws=500), overlap)


def belief_of(posterior_EN: Floats) -> Belief:
    """A belief whose updating prior is the posterior itself."""
    return Belief(tuple(DOMAINS[: len(posterior_EN)]), posterior_EN, posterior_EN)
