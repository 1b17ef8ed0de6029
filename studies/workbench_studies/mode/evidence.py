"""The evidence behind the claims of a MoDE replication."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from engine.statistics.bootstrap import Averages
from engine.statistics.estimates import Estimate
from workbench_studies.core.evidence import Evidence
from workbench_studies.mode.names import Arm
from workbench_studies.mode.scored import ModeMeasured, ModeSubject


@dataclass(frozen=True)
class ModeEvidence(Evidence):
    """With next-token accuracies, which are printed in %."""

    subject: ModeSubject
    measured: ModeMeasured

    @cached_property
    def accuracies(self) -> Averages:
        return Averages(self.measured.hits)

    def accuracy(self, arm: Arm, domains: Sequence[str]) -> Estimate | None:
        """The accuracy in %, averaged over domains and seeds."""
        return self.accuracies.estimate([arm], domains, lambda own: 100 * own)

    def lead(self, arm: Arm, other: Arm, domains: Sequence[str]) -> Estimate | None:
        """How many percentage points more an arm has than another."""
        return self.accuracies.estimate([arm, other], domains, lambda one, two: 100 * (one - two))

    def num_parameters(self, arm: Arm) -> int | None:
        """The number of parameters that an arm trained, in the first seed that has it."""
        is_complete = arm.method in ("backbone", "full")
        names = [run.backbone if is_complete else run.expert(arm, self.subject.targets) for run in self.subject.runs]
        return next((result for name in names if (result := self.measured.num_parameters.get(name))), None)


def on(domain: str) -> str:
    """The column of accuracies on a domain: no domain's name can be another column's."""
    return f"on {domain}"
