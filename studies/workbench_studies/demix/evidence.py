"""The evidence behind the claims of a DEMix replication."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workbench_studies.core.evidence import Evidence
from workbench_studies.demix.names import System
from workbench_studies.demix.scored import DemixMeasured, DemixSubject

Overlap = Mapping[tuple[str, str], float]  # of two domains; both ways


@dataclass(frozen=True)
class DemixEvidence(Evidence):
    """With posteriors, and the overlap of its domains."""

    subject: DemixSubject
    measured: DemixMeasured
    overlap: Overlap | None = None  # None: not measured

    def against(self, lower: System, higher: System, domains: Sequence[str]) -> str:
        """The two averages that a claim compares, over the seeds with both, as text; empty without scores."""
        pair = (lower, higher)
        own = [self.resampled.estimate(pair, domains, lambda *both, n=n: both[n]) for n in range(2)]
        return " against ".join(f"{one.value:.2f}" for one in own if one)
