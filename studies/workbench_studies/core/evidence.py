"""The evidence behind the claims of all replications."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from engine.statistics.bootstrap import Resampled
from workbench_studies.core.scored import Measured, Subject


@dataclass(frozen=True)
class Evidence:
    """The measurements of a subject, and the same under bootstrap draws of its text."""

    subject: Subject
    measured: Measured
    resampled: Resampled

    def against(self, lower: Hashable, higher: Hashable, domains: Sequence[str]) -> str:
        """The two averages that a claim compares, over the seeds with both, as text; empty without scores."""
        pair = (lower, higher)
        own = [self.resampled.estimate(pair, domains, lambda *both, n=n: both[n]) for n in range(2)]
        return " against ".join(f"{one.value:.2f}" for one in own if one)
