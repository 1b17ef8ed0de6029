"""Submits a plan: ordinary jobs with their dependencies, in one transaction.

A plan is not stored. The job of each step is looked up by its spec, so submitting again continues: jobs that are done
or in progress are kept, failed ones are retried, missing ones created.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy.orm import Session

from jobs.queue.submit import call_workers
from workbench.job_records import jobs as rows
from workbench.job_records.preconditions import RegistryForecast, creates
from workbench.registry import database
from workbench.schema.job_states import UNSUCCESSFUL
from workbench.settings import Settings, get_settings
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
        things = creates(step.spec)
        # A done job is made again where its results are gone; one without named results, such as scores, where a job
        # that it needs is made again.
        if existing is None or (
            existing.state == "done" and (not all(map(forecast.holds, things)) if things else restarted)
        ):
            forecast.validate(step.spec)
            ids[step.key] = rows.create_job(session, step.spec, step.title, [ids[key] for key in step.after])
            forecast.expect(step.spec)
            created.add(step.key)
        else:
            ids[step.key] = existing.id
            rows.wait_for(session, existing.id, restarted)
            state = rows.get_job(session, existing.id).state
            if state == "paused":
                rows.resume(session, existing.id)
            elif state in UNSUCCESSFUL:
                rows.retry(session, existing.id)
            if state != "done":
                forecast.expect(step.spec)
    return ids
