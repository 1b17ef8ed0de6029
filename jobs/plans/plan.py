"""A plan: ordinary jobs with their dependencies, asked for in one go.

Nothing remembers a plan. Each step is found again by its spec, so asking again goes on: jobs that are done or under way
are kept, failed ones tried again, missing ones made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy.orm import Session

from jobs.queue.submit import call_workers
from workbench.job_records import jobs as rows
from workbench.job_records.preconditions import RegistryForecast, creates
from workbench.plans import Step
from workbench.registry import database
from workbench.registry.cards import JobCard
from workbench.settings import Settings, get_settings
from workbench.spec_base import Spec


def submit_plan(steps: Callable[[Session], Sequence[Step]], settings: Settings | None = None) -> list[str]:
    """The ids of all jobs of a plan, in one transaction that the plan may read in; then workers are called.

    Raises BadSpec when a name that it needs is taken by something else.
    """
    settings = settings or get_settings()
    with database.transaction(settings) as session:
        plan = steps(session)
        ids = place(session, plan)
    call_workers(settings, [ids[step.key] for step in plan if not step.after])
    return list(ids.values())


def place(session: Session, steps: Sequence[Step]) -> dict[str, str]:
    """The id of each step's job by its key: found, tried again or made."""
    ids: dict[str, str] = {}
    made: set[str] = set()
    outlook = RegistryForecast(session)
    for step, found in zip(steps, rows.find_by_specs(session, [step.spec for step in steps]), strict=True):
        anew = [ids[key] for key in step.after if key in made]
        if found is None or not _stands(outlook, step.spec, found, bool(anew)):
            outlook.validate(step.spec)
            ids[step.key] = rows.create_job(session, step.spec, step.title, [ids[key] for key in step.after])
            outlook.expect(step.spec)
            made.add(step.key)
        else:
            ids[step.key] = found.id
            rows.wait_for(session, found.id, anew)
            if _set_going(session, found.id):
                outlook.expect(step.spec)
    return ids


def _stands(outlook: RegistryForecast, spec: Spec, found: JobCard, is_outdated: bool) -> bool:
    """Whether a job need not be asked for again: it is not over yet, or what it made is there.

    Of one that made nothing with a name, such as scores, it counts whether what it needs was made anew since.
    """
    things = creates(spec)
    if found.state != "done":
        return True
    return all(map(outlook.holds, things)) if things else not is_outdated


def _set_going(session: Session, job_id: str) -> bool:
    """Lets a stopped job go on, unless trying those before it did so already; whether it will make something yet."""
    state = rows.get_job(session, job_id).state
    if state == "paused":
        rows.resume(session, job_id)
    elif state in ("failed", "cancelled"):
        rows.retry(session, job_id)
    return state != "done"
