"""The audit log: who submitted, added, changed and deleted what. Nothing changes or deletes an entry.

`watch` sees every transaction, so that no service writes entries of what it adds, changes or deletes. What a job adds
is entered under the job's id; the entry of its submission names the user.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import event, inspect, select
from sqlalchemy.orm import Session

from workbench.access.actor import Role, current_actor, require
from workbench.answers.cards import AuditCard
from workbench.schema.job_tables import Job
from workbench.schema.tables import (
    Alias,
    AuditEntry,
    Cluster,
    Clustering,
    Comparison,
    Corpus,
    Expert,
    Mixture,
    MixtureMember,
    Prior,
    Report,
    SeedModel,
    User,
)

_NAMED = (Expert, Mixture, Alias, Prior, Corpus, SeedModel, Clustering, Report, User)
_BY_PEOPLE = {"name", "notes"}  # of a cluster; the rest is what jobs computed
NEWEST = 100


def watch(session: Session) -> None:
    """Starts recording changes; called before the first statement."""
    event.listen(session, "before_flush", _note)


def record(session: Session, action: str, kind: str, name: str, details: str = "") -> None:
    """Adds an entry that names who acts now."""
    user = current_actor().name
    session.add(AuditEntry(user=user[:200], action=action, kind=kind, name=name[:300], details=details))


def list_entries(
    session: Session, *, limit: int = NEWEST, offset: int = 0, user: str = "", action: str = ""
) -> list[AuditCard]:
    """The entries, the newest first; of one user or one action where they are given. Raises ForbiddenError."""
    require(Role.ADMIN)
    statement = select(AuditEntry).order_by(AuditEntry.id.desc()).limit(limit).offset(offset)
    for column, value in ((AuditEntry.user, user), (AuditEntry.action, action)):
        statement = statement.where(column == value) if value else statement
    return [AuditCard.from_fields(row) for row in session.scalars(statement)]


def _note(session: Session, _context: object, _instances: object) -> None:
    for action, rows in (("add", session.new), ("change", session.dirty), ("delete", session.deleted)):
        for row in list(rows):
            for kind, name, details in _subjects(session, action, row):
                record(session, "submit" if isinstance(row, Job) else action, kind, name, details)


def _subjects(session: Session, action: str, row: Any) -> Iterator[tuple[str, str, str]]:
    """The kind, name and details of an entry on a row: one or none."""
    if isinstance(row, MixtureMember) and row.mixture is None and action != "add":
        action = "delete"  # the flush deletes what lost its mixture
    state, changed = inspect(row), set[str]()
    if action == "change":
        changed = {attr.key for attr in state.mapper.column_attrs if state.attrs[attr.key].history.has_changes()}
        if not changed:
            return
    if isinstance(row, _NAMED):
        yield row.noun, row.title if isinstance(row, Report) else row.name, ", ".join(sorted(changed))
    elif isinstance(row, MixtureMember) and (mixture := _mixture_of(session, row)) is not None:
        words = {"add": "added", "delete": "removed"}.get(action, ", ".join(sorted(changed)))
        expert = row.expert or session.get(Expert, row.expert_id)  # a new row may have the id of its expert only
        yield "mixture", mixture.name, f"{expert.name if expert else row.expert_id}: {words}"
    elif isinstance(row, Cluster) and changed & _BY_PEOPLE:
        yield "cluster", f"{row.clustering.name}: {row.name}", ", ".join(sorted(changed & _BY_PEOPLE))
    elif isinstance(row, Job) and action == "add":
        yield row.kind, row.title, ""
    elif isinstance(row, Comparison) and action == "delete":
        yield "comparison", row.id, ""


def _mixture_of(session: Session, member: MixtureMember) -> Mixture | None:
    """The mixture of a member, or the one that it was removed from; None where that is new or deleted itself."""
    former: list[Mixture] = list(inspect(member).attrs.mixture.history.deleted)
    mixture: Mixture | None = member.mixture or next(iter(former), None)
    if mixture is None and member.mixture_id:
        mixture = session.get(Mixture, member.mixture_id)
    return None if mixture in session.new or mixture in session.deleted else mixture
