"""Report on a replication of MoDE."""

from __future__ import annotations

from workbench_studies.core.spec import kind_of
from workbench_studies.mode.arms import ReplicateMode

KIND = kind_of(ReplicateMode)
