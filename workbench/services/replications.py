"""What a replication reads from the registry: stored scores, curves of its trainings, overlaps of its domains."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session, joinedload

from workbench.cards import ReportCard
from workbench.replications.demix.evidence import Overlap
from workbench.replications.scored import ScoreKey, Stored
from workbench.replications.sizes import Size
from workbench.services import jobs
from workbench.services.reports import list_reports
from workbench.storage import Storage
from workbench.tables import Domain, Evaluation, Expert

REPORT = "replication"  # the kind of its reports
HELD_OUT = "dev_loss/"  # what a training's curve of a domain's held-out loss is called


def stored_scores(
    session: Session, storage: Storage, size: Size, domains: Sequence[str], job_ids: Collection[str]
) -> dict[ScoreKey, Stored]:
    """The scores on these domains of the experts that these jobs made, of the most tokens that the size asks for.

    Its name alone does not make an expert one of the replication's: another may have been trained under it.
    Nothing is hashed here: a transaction must be short.
    """
    most = {"test": size.test_tokens, "dev": size.dev_tokens}
    query = (
        select(Expert.name, Domain.name, Evaluation)
        .join(Evaluation.expert).join(Evaluation.domain).options(joinedload(Evaluation.artifact))
        .where(Domain.name.in_(domains), Evaluation.block_size == size.block_size)
        .where(Expert.job_id.in_(job_ids)).order_by(Evaluation.num_tokens)
    )  # fmt: skip
    return {
        (expert, domain, row.split): Stored(storage.kept(row.artifact), row.num_tokens)
        for expert, domain, row in session.execute(query)
        if row.num_tokens <= most[row.split]
    }


def held_out_losses(session: Session, job_id: str) -> dict[str, list[tuple[int, float]]]:
    """The curve of each domain's held-out loss (nats per token) in a training, as step and value."""
    found: dict[str, list[tuple[int, float]]] = {}
    for point in jobs.metrics(session, job_id):
        if point.name.startswith(HELD_OUT):
            found.setdefault(point.name.removeprefix(HELD_OUT), []).append((point.step, point.value))
    return found


def newest_report(session: Session, name: str) -> ReportCard | None:
    """The newest report of a replication; None while there is none."""
    return next((one for one in list_reports(session, kind=REPORT) if one.findings["name"] == name), None)


def overlap_by(session: Session, job_id: str) -> Overlap | None:
    """The overlap of every two domains that a job measured; None while there is none."""
    report = next((one for one in list_reports(session, kind="overlap") if one.job_id == job_id), None)
    if report is None:
        return None
    names, matrix = report.findings["domains"], report.findings["overlap"]
    return {
        (one, names[j]): float(share) for one, row in zip(names, matrix, strict=True) for j, share in enumerate(row)
    }
