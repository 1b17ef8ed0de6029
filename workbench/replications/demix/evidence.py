"""What the claims of a replication of DEMix are judged by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from workbench.replications.demix.scored import DemixMeasured, DemixSubject
from workbench.replications.evidence import Evidence

Overlap = Mapping[tuple[str, str], float]  # of two domains; both ways


@dataclass(frozen=True)
class DemixEvidence(Evidence):
    """With posteriors, and the overlap of its domains."""

    subject: DemixSubject
    measured: DemixMeasured
    overlap: Overlap | None = None  # None: not measured
