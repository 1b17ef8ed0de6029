"""What the claims of any replication are judged by."""

from __future__ import annotations

from dataclasses import dataclass

from engine.statistics.bootstrap import Resampled
from workbench.replications.scored import Measured, Subject


@dataclass(frozen=True)
class Evidence:
    """What was measured of a subject, and the same under draws of its text."""

    subject: Subject
    measured: Measured
    resampled: Resampled
