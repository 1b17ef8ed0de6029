"""The losses and hits that MoDE's claims are about, from stored scores. Nothing here reads the registry.

Every arm is one model that stands alone, so nothing is mixed. An arm whose scores are not there yet is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from engine.statistics.estimates import Estimate
from workbench_studies.core.averages import Averages, Hits, Place
from workbench_studies.core.measurements import Measurements, ScoredText, Scores
from workbench_studies.mode.names import Arm
from workbench_studies.mode.spec import ReplicateMode


@dataclass
class ModeMeasurements(Measurements):
    """With which tokens were hit, and the parameters of seed models and experts, by name. Averages are in %."""

    subject: ReplicateMode
    hits: dict[Place, Hits] = field(default_factory=dict)
    num_parameters: dict[str, int] = field(default_factory=dict)

    @cached_property
    def accuracies(self) -> Averages:
        return Averages(self.hits)

    def accuracy(self, arm: Arm, domains: Sequence[str]) -> Estimate | None:
        """The accuracy in %, averaged over domains and seeds."""
        return self.accuracies.estimate([arm], domains, lambda own: 100 * own)

    def lead(self, arm: Arm, other: Arm, domains: Sequence[str]) -> Estimate | None:
        """How many percentage points more an arm has than another."""
        return self.accuracies.estimate([arm, other], domains, lambda one, two: 100 * (one - two))

    def parameters_of(self, arm: Arm) -> int | None:
        """The number of parameters that an arm trained, in the first seed that has it."""
        is_complete = arm.method in ("backbone", "full")
        names = [run.backbone if is_complete else run.expert(arm, self.subject.targets) for run in self.subject.runs]
        return next((result for name in names if (result := self.num_parameters.get(name))), None)

    def measure(self, scores: Scores) -> Iterator[str]:
        """Adds what the scores give; says after each seed and text where it is."""
        for run in self.subject.runs:
            for domain in self.subject.everywhere:
                text = ScoredText(self.subject.budget, domain, scores)
                for arm in self.subject.arms:
                    expert = run.expert(arm, self.subject.targets)
                    self.keep(arm, run.seed, domain, text.one(expert))
                    if (hits := text.hits(expert)) is not None:
                        self.hits[arm, run.seed, domain] = hits
                yield f"seed {run.seed}, {domain}"
