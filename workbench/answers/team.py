"""Users of a team, and entries of the audit log. Times are seconds since 1970 (UTC)."""

from __future__ import annotations

from workbench.answers.base import Answer


class UserCard(Answer):
    """A user, without the token."""

    name: str
    role: str  # viewer | editor | admin
    created_at: float
    revoked_at: float | None = None


class AuditCard(Answer):
    """An entry of the audit log."""

    id: int
    at: float
    user: str
    action: str  # submit, add, change, delete, …
    kind: str  # of the object; of a job its kind, such as train-expert
    name: str
    details: str = ""
