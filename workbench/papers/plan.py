"""A replication as a plan of ordinary jobs, derived from its spec."""

from __future__ import annotations

from workbench.kinds.replications.replicate import Replicate
from workbench.papers.catalog import PAPERS
from workbench.plans import Step


def plan(spec: Replicate) -> list[Step]:
    """Every job of a replication in the order in which they should start; the last one writes the report."""
    steps = PAPERS[spec.paper].steps(spec)
    return [*steps, Step("report", spec, f"{spec.name}: report", tuple(step.key for step in steps))]
