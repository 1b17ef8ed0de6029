"""Report on a replication of C-BTM."""

from __future__ import annotations

from workbench_studies.cbtm.names import ReplicateCbtm
from workbench_studies.core.spec import kind_of

KIND = kind_of(ReplicateCbtm)
