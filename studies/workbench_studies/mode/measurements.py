"""The losses and hits that MoDE's claims are about, from stored scores. Nothing here reads the registry.

Every arm is a single model, so nothing is mixed. An arm whose scores are not there yet is left out.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from workbench_studies.core.averages import Averages, Hits, Place
from workbench_studies.core.measurements import Measurements, ScoredText, Scores
from workbench_studies.core.verdicts import NEAR_CHANCE
from workbench_studies.mode.arms import ReplicateMode
from workbench_studies.mode.names import BACKBONE, Arm, targets_of

_ROUNDING = 1e-9  # between means of the same accuracies over different numbers of seeds


@dataclass
class ModeMeasurements(Measurements):
    """With which tokens were hit, and the parameters of seed models and experts, by name. Averages are in %."""

    subject: ReplicateMode
    hits: dict[Place, Hits] = field(default_factory=dict)
    num_parameters: dict[str, int] = field(default_factory=dict)
    unit = "percentage points"
    scale = 100.0

    @cached_property
    def averages(self) -> Averages:
        """The accuracies, which claims compare here."""
        return Averages(self.hits)

    def value_of(self, system: Hashable, domains: Sequence[str]) -> float | None:
        """The average without its interval; `value` is a perplexity."""
        result = self.average(system, domains)
        return result.value if result else None

    def parameters_of(self, arm: Arm) -> int | None:
        """The number of parameters that an arm trained, in the first seed that has it."""
        is_complete = arm.method in ("backbone", "full")
        names = [run.backbone if is_complete else run.expert(arm, self.subject.targets) for run in self.subject.runs]
        return next((result for name in names if (result := self.num_parameters.get(name))), None)

    def measure(self, scores: Scores) -> Iterator[str]:
        """Adds what the scores give; says after each seed and text where it is."""
        for run in self.subject.runs:
            for domain in self.subject.everywhere:
                text = ScoredText(self, run, domain, scores)
                for arm in self.subject.arms:
                    expert = run.expert(arm, self.subject.targets)
                    text.keep(arm, text.one(expert))
                    if (hits := text.hits(expert)) is not None:
                        self.hits[arm, run.seed, domain] = hits
                yield f"seed {run.seed}, {domain}"

    def floor(self, systems: Sequence[Arm], domains: Sequence[str]) -> str:
        """Why a comparison of these arms would not be a result; empty where it is one.

        An arm is as good as untrained if it did not end above the untouched backbone on what it was trained on.
        Averages near that of a guess among all tokens say nothing if that of every arm is.
        """
        if untrained := next(filter(None, map(self._as_untrained, systems)), ""):
            return untrained
        values = [100 * one for arm in systems if (one := self.averages.value(arm, domains)) is not None]
        chance = 100 / self.subject.budget.vocab_size
        if values and max(values) <= chance + NEAR_CHANCE:
            listed = " and ".join(f"{value:.1f}" for value in values)
            return f"{listed} % are within {NEAR_CHANCE:g} points of a guess among all tokens ({chance:.2f} %)."
        return ""

    def _as_untrained(self, arm: Arm) -> str:
        """That an arm is not above the untouched backbone on its own text; empty if it is, or is not known.

        Early stopping restores the best weights, which may be those of the start: such an arm is the backbone itself.
        """
        trained = targets_of(arm, self.subject.targets)
        own, untouched = (self.averages.value(one, trained) for one in (arm, BACKBONE))
        if own is None or untouched is None or own > untouched + _ROUNDING:
            return ""
        is_same = own >= untouched - _ROUNDING
        words = "did not leave the untouched backbone" if is_same else "ended below the untouched backbone"
        return f"{arm} {words} on {' and '.join(trained)} ({100 * own:.2f} against {100 * untouched:.2f} %)."
