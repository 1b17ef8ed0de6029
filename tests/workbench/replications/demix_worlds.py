"""Made-up replications whose answers are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from engine.statistics.bootstrap import Loss, Place, Resampled
from engine.statistics.estimates import Floats
from workbench.replications.demix.evidence import DemixEvidence, Overlap
from workbench.replications.demix.scored import Belief, DemixMeasured, DemixSubject
from workbench.replications.demix.sizes import SIZES

DOMAINS, NOVEL = ("law", "code", "sea", "kitchen"), ("tweets", "poems")


def evidence_of(
    losses: Mapping[Place, Loss],
    *,
    beliefs: Mapping[tuple[int, str], Belief] | None = None,
    overlap: Overlap | None = None,
    removed: Sequence[str] = (),
    seeds: int = 2,
    domains: Sequence[str] = DOMAINS,
) -> DemixEvidence:
    """A replication of size tiny that measured these."""
    subject = DemixSubject("rep", seeds, tuple(domains), NOVEL, replace(SIZES["tiny"]), tuple(removed))
    measured = DemixMeasured(dict(losses), beliefs=dict(beliefs or {}))
    return DemixEvidence(subject, measured, Resampled(measured.losses, num_draws=500), overlap)


def belief_of(posterior_EN: Floats, num_documents: int | None = None) -> Belief:
    """A belief whose updating prior is the posterior itself; each block is a document unless told otherwise."""
    num_blocks = posterior_EN.shape[1]
    of_N = np.arange(num_blocks) * (num_documents or num_blocks) // num_blocks
    return Belief(tuple(DOMAINS[: len(posterior_EN)]), posterior_EN, posterior_EN, of_N)
