"""A replication as a plan of ordinary jobs, derived from its spec."""

from __future__ import annotations

from workbench.specs.requests import PlanStep
from workbench_studies.kinds.replicate import Replicate
from workbench_studies.papers.catalog import PAPERS


def plan(spec: Replicate) -> list[PlanStep]:
    """Every job of a replication in the order in which they should start; the last one writes the report."""
    steps = PAPERS[spec.paper].steps(spec)
    return [*steps, PlanStep("report", spec, f"{spec.name}: report", tuple(step.key for step in steps))]
