"""Reports: results of jobs, which stay after their experts and jobs are deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from workbench.answers.cards import ReportCard
from workbench.schema.names import by_id
from workbench.schema.tables import Artifact, Report


def register_report(
    session: Session,
    kind: str,
    title: str,
    findings: dict[str, Any],
    *,
    about_id: str | None = None,
    artifact: Artifact | None = None,
    job_id: str | None = None,
) -> ReportCard:
    """Registers a report; `findings` is JSON, and `about_id` an expert or a mixture."""
    row = Report(kind=kind, title=title, findings=findings, about_id=about_id, artifact=artifact, job_id=job_id)
    session.add(row)
    session.flush()
    return ReportCard.from_fields(row)


def list_reports(
    session: Session, *, kind: str | None = None, about_id: str | None = None, job_ids: Sequence[str] | None = None
) -> list[ReportCard]:
    """Reports, the newest first; with `job_ids` those that these jobs made."""
    query = select(Report).order_by(Report.created_at.desc(), Report.id)
    if kind is not None:
        query = query.where(Report.kind == kind)
    if about_id is not None:
        query = query.where(Report.about_id == about_id)
    if job_ids is not None:
        query = query.where(Report.job_id.in_(job_ids))
    return [ReportCard.from_fields(row) for row in session.scalars(query)]


def get_report(session: Session, id: str) -> ReportCard:
    """One report by its id or a unique prefix of it."""
    return ReportCard.from_fields(by_id(session, Report, id))


def delete_report(session: Session, id: str) -> None:
    """Deletes a report with its pages."""
    row = by_id(session, Report, id)
    artifact = row.artifact
    session.delete(row)
    session.flush()
    if artifact is not None:
        session.delete(artifact)
