"""Ids of what a job makes: the same at every attempt, so that work done before a crash is found again."""

from __future__ import annotations

import uuid


def made_by(job_id: str, what: str) -> str:
    """The id (32 hexadecimal digits) of the thing that a job calls `what`."""
    return uuid.uuid5(uuid.UUID(job_id), what).hex
