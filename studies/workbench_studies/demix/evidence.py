"""The evidence behind the claims of a DEMix replication."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from workbench_studies.core.evidence import Evidence
from workbench_studies.demix.names import Reading, System, Variant, demix_dapt, dense_dapt, system
from workbench_studies.demix.scored import DemixMeasured, DemixSubject

Overlap = Mapping[tuple[str, str], float]  # of two domains; both ways


@dataclass(frozen=True)
class DemixEvidence(Evidence):
    """With posteriors, and the overlap of its domains."""

    subject: DemixSubject
    measured: DemixMeasured
    overlap: Overlap | None = None  # None: not measured


@dataclass(frozen=True)
class DemixCase:
    """The names of claims under one reading of the posterior."""

    evidence: DemixEvidence
    reading: Reading

    @property
    def words(self) -> Mapping[str, object]:
        return {}

    def system(self, name: str, target: str = "") -> System:
        """A system by its mode; of an adapted one that of a target."""
        if name == "dense-dapt":
            return dense_dapt(target)
        return demix_dapt(target, self.reading) if name == "demix-dapt" else system(cast(Variant, name), self.reading)

    def texts(self, name: str) -> Sequence[str]:
        subject = self.evidence.subject
        return {"training": subject.domains, "novel": subject.novel, "everywhere": subject.everywhere}[name]
