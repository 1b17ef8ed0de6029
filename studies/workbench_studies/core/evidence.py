"""The evidence behind the claims of all replications."""

from __future__ import annotations

from dataclasses import dataclass

from engine.statistics.bootstrap import Resampled
from workbench_studies.core.scored import Measured, Subject


@dataclass(frozen=True)
class Evidence:
    """The measurements of a subject, and the same under bootstrap draws of its text."""

    subject: Subject
    measured: Measured
    resampled: Resampled
