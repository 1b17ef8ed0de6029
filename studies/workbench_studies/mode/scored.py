"""The losses and hits that MoDE's claims are about, from stored scores. Nothing here reads the registry.

Every arm is one model that stands alone, so nothing is mixed. An arm whose scores are not there yet is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from engine.statistics.bootstrap import Hits, Place
from workbench_studies.core.scored import Measured, ScoredText, Scores, Subject
from workbench_studies.mode.arms import arms_of
from workbench_studies.mode.names import BACKBONE, Arm, ModeRun, runs_of
from workbench_studies.mode.sizes import ModeSize


@dataclass
class ModeMeasured(Measured):
    """Losses, which tokens were hit, and the parameters of seed models and experts, by name."""

    hits: dict[Place, Hits] = field(default_factory=dict)
    num_parameters: dict[str, int] = field(default_factory=dict)


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
    def single(self) -> tuple[str, str]:
        """The columns of tables 2 and 3: the second target, and what is retained."""
        return (self.targets[1], self.retention)

    @property
    def others(self) -> tuple[str, ...]:
        """The other domains that the backbone was trained on."""
        return tuple(one for one in self.domains if one not in self.judged)


def measure(subject: ModeSubject, scores: Scores, measured: ModeMeasured) -> Iterator[str]:
    """Fills `measured`; says after each seed and text where it is."""
    for run in subject.runs:
        for domain in subject.everywhere:
            text = ScoredText(subject.size, domain, scores)
            for arm in subject.arms:
                expert, place = run.expert(arm, subject.targets), (arm, run.seed, domain)
                if (loss := text.one(expert)) is not None:
                    measured.losses[place] = loss
                if (hits := text.hits(expert)) is not None:
                    measured.hits[place] = hits
            yield f"seed {run.seed}, {domain}"
