"""Submits a plan: ordinary jobs with their dependencies, in one transaction.

A plan is not stored. The job of each step is looked up by its spec, so submitting again continues: jobs that are done
or in progress are kept, failed ones are retried, missing ones created.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy.orm import Session

from jobs.queue.submit import call_workers
from workbench.answers.cards import JobCard
from workbench.job_records import jobs as rows
from workbench.job_records.preconditions import RegistryForecast, creates
from workbench.registry import database
from workbench.schema.job_states import UNSUCCESSFUL
from workbench.settings import Settings, get_settings
from workbench.specs.base import Spec
from workbench.specs.requests import PlanStep


def submit_plan(steps: Callable[[Session], Sequence[PlanStep]], settings: Settings | None = None) -> list[str]:
    """Submits all jobs of a plan in one transaction, notifies the workers, and returns the jobs' ids.

    Raises BadSpecError when a needed name is taken.
    """
    settings = settings or get_settings()
    with database.transaction(settings) as session:
        plan = steps(session)
        ids = place(session, plan)
    call_workers(settings, [ids[step.key] for step in plan if not step.after])
    return list(ids.values())


def place(session: Session, steps: Sequence[PlanStep]) -> dict[str, str]:
    """The id of each step's job by its key, after it was found, retried or created."""
    ids: dict[str, str] = {}
    created: set[str] = set()
    forecast = RegistryForecast(session)
    for step, existing in zip(steps, rows.find_by_specs(session, [step.spec for step in steps]), strict=True):
        restarted = [ids[key] for key in step.after if key in created]
        if existing is None or not _is_reusable(forecast, step.spec, existing, bool(restarted)):
            forecast.validate(step.spec)
            ids[step.key] = rows.create_job(session, step.spec, step.title, [ids[key] for key in step.after])
            forecast.expect(step.spec)
            created.add(step.key)
        else:
            ids[step.key] = existing.id
            rows.wait_for(session, existing.id, restarted)
            if _continue(session, existing.id):
                forecast.expect(step.spec)
    return ids


def _is_reusable(forecast: RegistryForecast, spec: Spec, job: JobCard, is_outdated: bool) -> bool:
    """True if a job need not be submitted again: it is not done yet, or its results exist.

    A job without named results, such as scores, is outdated when a job that it needs is created again.
    """
    things = creates(spec)
    if job.state != "done":
        return True
    return all(map(forecast.holds, things)) if things else not is_outdated


def _continue(session: Session, job_id: str) -> bool:
    """Resumes or retries a stopped job, if that has not happened already; True unless the job is done."""
    state = rows.get_job(session, job_id).state
    if state == "paused":
        rows.resume(session, job_id)
    elif state in UNSUCCESSFUL:
        rows.retry(session, job_id)
    return state != "done"
