"""The evidence behind the claims of a C-BTM replication."""

from __future__ import annotations

from dataclasses import dataclass

from workbench_studies.cbtm.scored import CbtmMeasured, CbtmSubject, Grouping
from workbench_studies.core.evidence import Evidence


@dataclass(frozen=True)
class CbtmEvidence(Evidence):
    """With what its clusterings are like."""

    subject: CbtmSubject
    measured: CbtmMeasured

    def groupings(self, clustering: str) -> dict[int, Grouping]:
        """A clustering of every seed that has it, by seed."""
        groupings = self.measured.groupings
        return {seed: one for (seed, name), one in sorted(groupings.items()) if name == clustering}
