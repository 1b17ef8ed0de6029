"""The audit log, for admins."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from ui.api.deps import State, read
from workbench.access import audit
from workbench.answers.card_lists import AuditList

router = APIRouter(prefix="/v1/workbench")
MOST = 1000  # of one answer


@router.get("/audit")
def list_audit(
    state: State,
    user: Annotated[str, Query(max_length=200, description="Only what this user did.")] = "",
    action: Annotated[str, Query(max_length=32, description="Only this action, such as delete.")] = "",
    limit: Annotated[int, Query(ge=1, le=MOST)] = audit.NEWEST,
    offset: Annotated[int, Query(ge=0, le=2**31, description="Newer entries to leave out.")] = 0,
) -> AuditList:
    """Who submitted, added, changed and deleted what, the newest first."""
    return AuditList(data=read(state, audit.list_entries, user=user, action=action, limit=limit, offset=offset))
