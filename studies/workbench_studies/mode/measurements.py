"""The losses and hits that MoDE's claims are about, from stored scores. Nothing here reads the registry.

Every arm is one model that stands alone, so nothing is mixed. An arm whose scores are not there yet is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from engine.statistics.bootstrap import Accuracies, Hits, Place
from engine.statistics.estimates import Estimate
from workbench_studies.core.measurements import Measurements, ScoredText, Scores, Subject
from workbench_studies.mode.arms import ModeSize, arms_of
from workbench_studies.mode.names import BACKBONE, Arm, ModeRun, runs_of


@dataclass(frozen=True)
class ModeSubject(Subject):
    """With the domains that models are adapted to, and the one that they must not forget."""

    size: ModeSize
    targets: tuple[str, str]
    retention: str

    @property
    def runs(self) -> list[ModeRun]:
        return runs_of(self.name, self.seeds, shared_backbone=self.size.shared_backbone)

    @property
    def arms(self) -> list[Arm]:
        return [BACKBONE, *arms_of(self.size)]

    @property
    def judged(self) -> tuple[str, ...]:
        """The columns of table 1: both targets, and what is retained."""
        return (*self.targets, self.retention)

    @property
    def others(self) -> tuple[str, ...]:
        """The other domains that the backbone was trained on."""
        return tuple(one for one in self.domains if one not in self.judged)


@dataclass
class ModeMeasurements(Measurements):
    """With which tokens were hit, and the parameters of seed models and experts, by name. Accuracies are in %."""

    subject: ModeSubject
    hits: dict[Place, Hits] = field(default_factory=dict)
    num_parameters: dict[str, int] = field(default_factory=dict)

    @cached_property
    def accuracies(self) -> Accuracies:
        return Accuracies(self.hits)

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
                text = ScoredText(self.subject.size, domain, scores)
                for arm in self.subject.arms:
                    expert = run.expert(arm, self.subject.targets)
                    self.keep(arm, run.seed, domain, text.one(expert))
                    if (hits := text.hits(expert)) is not None:
                        self.hits[arm, run.seed, domain] = hits
                yield f"seed {run.seed}, {domain}"
