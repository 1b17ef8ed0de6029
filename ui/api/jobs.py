"""Jobs over HTTP: submit, list, show, follow, stop and continue them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field, field_validator
from starlette.concurrency import run_in_threadpool

from engine.errors import Problem
from jobs.attempt.job_log import last_lines
from jobs.queue import submit
from ui.api.deps import State, unless_gone
from ui.api.error_responses import error_body
from ui.api.event_stream import EventStream, event, json_event
from ui.api.schemas.generation import require_unicode
from ui.generation.app_state import AppState
from ui.kinds.catalog import command_of
from ui.present.csv_text import HEADER, csv_rows
from ui.present.forms.job_forecast import forecast_of
from ui.present.forms.readable_folders import require_readable
from workbench.analysis.training_curves import JobMetrics, MetricTail, job_metrics
from workbench.answers.card_lists import JobDeletion, JobHistory, JobList, JobLog
from workbench.answers.cards import JobCard
from workbench.answers.forecasts import Forecast
from workbench.job_records import jobs
from workbench.job_records.preconditions import kind_of
from workbench.kinds.kind import known_kinds
from workbench.requests.body import MAX_NAMED, RequestBody
from workbench.schema.job_states import STOPPED, ShownState
from workbench.specs.base import Spec

if TYPE_CHECKING:
    AnySpec = Spec
else:
    AnySpec = Annotated[Union[tuple(kind.spec for kind in known_kinds().values())], Field(discriminator="kind")]  # noqa: UP007


class ForecastRequest(RequestBody):
    """POST /v1/workbench/jobs/forecast."""

    spec: AnySpec = Field(description="What to do: the kind of job, with its options.")

    @field_validator("spec", mode="before")
    @classmethod
    def _is_unicode(cls, value: Any) -> Any:
        require_unicode(json.dumps(value, ensure_ascii=False, default=str))
        return value


class JobRequest(ForecastRequest):
    """POST /v1/workbench/jobs."""

    after: list[str] = Field(default_factory=list, max_length=MAX_NAMED, description="Ids of jobs to wait for.")
    priority: int = Field(0, ge=-1000, le=1000, description="Waiting jobs with the highest number start first.")
    title: str | None = Field(None, min_length=1, max_length=300, description="Its title; left out: from its spec.")
    score: bool = Field(
        False,
        description="Also queue the job that scores what a training makes, as the studio and the command line do. It "
        "waits for this one.",
    )


class JobPriority(RequestBody):
    """PUT /v1/workbench/jobs/ID/priority."""

    priority: int = Field(ge=-1000, le=1000, description="The default is 0. The highest number starts first.")


router = APIRouter(prefix="/v1/workbench/jobs")
POLL_SECONDS = 0.5
MOST_JOBS, MOST_LINES = 1000, 10_000  # of one answer

OTHER_FORMS: dict[int | str, dict[str, Any]] = {200: {"content": {"text/csv": {}, "text/event-stream": {}}}}


@router.get("")
def list_jobs(
    state: State,
    status: Annotated[ShownState | None, Query(description="Only jobs with this status.")] = None,
    kind: Annotated[str | None, Query(description="Only jobs of this kind, such as evaluate.")] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_JOBS)] = jobs.NEWEST,
    offset: Annotated[int, Query(ge=0, le=2**31, description="Newer jobs to leave out.")] = 0,
) -> JobList:
    """Jobs, the newest first."""
    return JobList(data=state.read(jobs.list_jobs, state=status, kind=kind, limit=limit, offset=offset))


@router.post("", status_code=202)
def submit_job(body: JobRequest, response: Response, state: State) -> JobCard:
    """Queues a job. A path in its spec may lead only into the folders of WORKBENCH_DATA_FOLDERS."""
    require_readable(body.spec.local_paths(), state.settings)
    job_id = submit.submit(
        body.spec, after=body.after, priority=body.priority, title=body.title, settings=state.settings
    )
    if body.score:
        submit.submit_follow_up(body.spec, job_id, priority=body.priority, settings=state.settings)
    response.headers["location"] = f"{router.prefix}/{job_id}"
    return state.read(jobs.get_job, job_id)


@router.post("/forecast")
async def forecast_job(body: ForecastRequest, request: Request, state: State) -> Forecast:
    """What a job would take: time, memory, disk, FLOPs and its first batch, measured in seconds; nothing is queued.

    The probe ends when the client leaves. Only kinds of job with a probe have a forecast: trainings do.
    """
    require_readable(body.spec.local_paths(), state.settings)
    command = command_of(kind_of(body.spec).name)
    return await unless_gone(request, _await_forecast(forecast_of(body.spec, command, state.settings)))


@router.get("/{job_id}")
def show_job(job_id: str, state: State) -> JobHistory:
    """A job with its spec, its progress, its result and its events."""
    return state.read(
        lambda session: JobHistory(job=jobs.get_job(session, job_id), events=jobs.events(session, job_id))
    )


@router.get("/{job_id}/log")
def show_log(
    job_id: str, state: State, lines: Annotated[int, Query(ge=1, le=MOST_LINES, description="From the end.")] = 50
) -> JobLog:
    """The end of the log of a job's process, on whichever machine it runs."""
    state.read(jobs.get_job, job_id)  # or an error
    return JobLog(job=job_id, lines=last_lines(state.settings, job_id, lines))


def _add_change(verb: str, change: Callable[..., None], sentence: str) -> None:
    def change_job(job_id: str, state: State) -> JobCard:
        change(job_id, settings=state.settings)
        return state.read(jobs.get_job, job_id)

    router.post(f"/{{job_id}}/{verb}", name=f"{verb}_job", description=sentence)(change_job)


_CANCEL, _PAUSE = (partial(submit.request_stop, how=how) for how in ("cancel", "pause"))
_add_change("cancel", _CANCEL, "Stops a job; it has stopped when its state says so. Its checkpoints are kept.")
_add_change("pause", _PAUSE, "Stops a job at a checkpoint; it has stopped when its state says so.")
_add_change("resume", submit.resume, "Queues a paused job again; it continues from its last checkpoint.")
_add_change("retry", submit.retry, "Queues a failed or cancelled job again; it continues from its last checkpoint.")


@router.put("/{job_id}/priority")
def set_priority(job_id: str, body: JobPriority, state: State) -> JobCard:
    """Sets the priority of a job that waits; running jobs are not interrupted."""
    state.write(jobs.set_priority, job_id, body.priority)
    return state.read(jobs.get_job, job_id)


@router.delete("/{job_id}")
def delete_job(job_id: str, state: State) -> JobDeletion:
    """Deletes an ended job with its log and checkpoints; what it made is kept."""
    is_gone = submit.delete(job_id, settings=state.settings)
    return JobDeletion(deleted=job_id, in_list=not is_gone)


@router.get("/{job_id}/metrics", response_model=JobMetrics, responses=OTHER_FORMS)
async def show_metrics(
    job_id: str,
    state: State,
    metric: Annotated[list[str], Query(description="Only these metrics; loss also stands for loss/DOMAIN.")] = [],  # noqa: B006
    format: Annotated[Literal["json", "csv"], Query(description="csv: one row for each point.")] = "json",
    follow: Annotated[bool, Query(description="Server-sent events with the new points, until the job ends.")] = False,
) -> JobMetrics | Response:
    """A job's curves: losses, gate weights and speeds, one point for each metric and step."""
    if follow:
        with ExitStack() as slot:
            slot.enter_context(state.follower_slot())
            tail = MetricTail(job_id, metric)
            # The first read is awaited here: what fails in it is still an honest status.
            first = await run_in_threadpool(state.read, tail.read)
            return EventStream(_events(state, tail, first), slot.pop_all().close)
    answer = await run_in_threadpool(state.read, job_metrics, job_id, metric)
    if format == "csv":
        return Response(HEADER + csv_rows(answer.points), media_type="text/csv")
    return answer


async def _await_forecast(stages: Generator[str, None, Forecast]) -> Forecast:
    """The forecast at the end of its stages; cancelled, it ends the probe."""

    def advance() -> Forecast | None:
        try:
            next(stages)
        except StopIteration as end:
            forecast: Forecast = end.value
            return forecast
        return None

    try:
        while (forecast := await run_in_threadpool(advance)) is None:
            pass
        return forecast
    finally:
        stages.close()


async def _events(app: AppState, tail: MetricTail, answer: JobMetrics) -> AsyncGenerator[str, None]:
    """An event for the first read, then one whenever there are new points or another state; `[DONE]` at the end.

    When the server stops, the last event is an error that says so.
    """
    state = ""
    try:
        while True:
            if answer.points or answer.state != state:
                yield event(answer.model_dump_json())
            state = answer.state
            if state in STOPPED:
                break
            await asyncio.sleep(POLL_SECONDS)
            app.slots.require_open()
            answer = await run_in_threadpool(app.read, tail.read)
    except Problem as problem:
        yield json_event(error_body(problem))
    yield event("[DONE]")
