"""Kinds of job are named after what they do: train-joint, replicate-demix, measure-overlap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from alembic import op

revision = "0008"
down_revision = "0007"

NEW_NAMES = {"train-demix": "train-joint", "replicate": "replicate-demix", "overlap": "measure-overlap"}
JOBS = sa.table("jobs", sa.column("id", sa.String), sa.column("kind", sa.String), sa.column("spec", sa.JSON))
REPORTS = sa.table("reports", sa.column("id", sa.String), sa.column("findings", sa.JSON))


def upgrade() -> None:
    _rename(NEW_NAMES)


def downgrade() -> None:
    _rename({new: old for old, new in NEW_NAMES.items()})


def _rename(names: Mapping[str, str]) -> None:
    """Renames the kinds of jobs, in their specs and in reports that list jobs."""
    connection = op.get_bind()
    for job in connection.execute(sa.select(JOBS).where(JOBS.c.kind.in_(names))).all():
        kind = names[job.kind]
        connection.execute(JOBS.update().where(JOBS.c.id == job.id).values(kind=kind, spec={**job.spec, "kind": kind}))
    for report in connection.execute(sa.select(REPORTS)).all():
        if findings := _rename_kinds(report.findings, names):
            connection.execute(REPORTS.update().where(REPORTS.c.id == report.id).values(findings=findings))


def _rename_kinds(findings: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any] | None:
    """The findings of a replication with renamed kinds; None for those of another report, or without such jobs."""
    jobs = findings.get("jobs")
    if not isinstance(jobs, list) or not any(job.get("kind") in names for job in jobs):
        return None
    return {**findings, "jobs": [{**job, "kind": names.get(job["kind"], job["kind"])} for job in jobs]}
