"""Ids of a job's results: the same in every attempt, so that work done before a crash is reused."""

from __future__ import annotations

import uuid


def stable_id(job_id: str, what: str) -> str:
    """The id (32 hexadecimal digits) of the job's result called `what`."""
    return uuid.uuid5(uuid.UUID(job_id), what).hex
