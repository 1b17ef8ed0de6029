"""Report on a replication of DEMix."""

from __future__ import annotations

from workbench_studies.core.spec import kind_of
from workbench_studies.demix.names import ReplicateDemix

KIND = kind_of(ReplicateDemix)
