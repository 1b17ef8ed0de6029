"""References to a row: nothing is deleted or renamed while something uses it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlalchemy import select
from sqlalchemy.orm import Session

from workbench.errors import InUseError
from workbench.formatting.number_format import listed
from workbench.kinds.kind import known_kinds
from workbench.schema.job_states import UNFINISHED
from workbench.schema.job_tables import Job

_SHOWN = 8


def refuse_if_used(what: str, name: str, users: Mapping[str, Iterable[str]]) -> None:
    """Raises InUseError that names the users, such as {"expert": ["law"]}, unless there are none."""
    _refuse(what, name, "deleted", users, "Delete what needs it first, or keep it.")


def refuse_renaming(what: str, name: str, jobs: Iterable[str]) -> None:
    """Raises InUseError that names the unfinished jobs, if any: each attempt looks things up by name."""
    _refuse(what, name, "renamed", {"job": jobs}, "Wait for it or cancel it first, or keep the name.")


def unfinished_jobs(
    session: Session, fields: Iterable[str], names: Iterable[str], clustering: str | None = None
) -> list[str]:
    """The titles of unfinished jobs whose spec has one of the names in one of the fields.

    A job without named domains uses all domains, so it needs every one. For names of clusters pass their `clustering`:
    jobs on others do not count.
    """
    jobs = session.scalars(select(Job).where(Job.state.in_(UNFINISHED)))
    wanted = set(names)
    return [
        job.title
        for job in jobs
        if clustering in (None, job.spec.get("clustering"))
        and any(_takes_all(job, field) or wanted & _names(job.spec.get(field)) for field in fields)
    ]


def _takes_all(job: Job, field: str) -> bool:
    kind = known_kinds().get(job.kind)  # None: of a plug-in that is not installed any more
    return kind is not None and kind.empty_means_all_domains and field == "domains" and not job.spec.get(field)


def _names(value: object) -> set[str]:
    if isinstance(value, list):
        return {name for name in value if isinstance(name, str)}
    return {value} if isinstance(value, str) else set()


def _refuse(what: str, name: str, done: str, users: Mapping[str, Iterable[str]], next_step: str) -> None:
    users_by_kind = {kind: sorted(set(names)) for kind, names in users.items()}
    needed = [
        f"{kind} {listed([f'“{one}”' for one in names], _SHOWN)}" for kind, names in users_by_kind.items() if names
    ]
    if needed:
        raise InUseError(f"The {what} “{name}” cannot be {done}: it is needed by {'; '.join(needed)}.", next_step)
