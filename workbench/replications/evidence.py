"""What the claims of a replication are judged by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.replication.bootstrap import Resampled
from workbench.replications.scored import Measured, Subject

Overlap = Mapping[tuple[str, str], float]  # of two domains; both ways


@dataclass(frozen=True)
class Evidence:
    """The subject, what was measured of it, the same under draws of its text, and the overlap of its domains."""

    subject: Subject
    measured: Measured
    resampled: Resampled
    overlap: Overlap | None  # None: not measured
