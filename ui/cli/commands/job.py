"""Jobs: list, show, wait for, pause, resume, cancel, retry and delete them; print their curves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from engine.config import MOST
from ui.cli.completion import names_of
from ui.cli.job_progress import card_of, follow, report, watch_line
from ui.cli.listing import Column, created_column, lists
from ui.cli.options import Json
from ui.cli.output import day, print_done, print_fields, print_json, say
from ui.errors import BadUsageError
from ui.present.jobs.job_status import percent_of
from ui.present.text.formatting import duration
from workbench.answers.cards import JobCard
from workbench.schema.job_states import ShownState

app = typer.Typer(no_args_is_help=True, help=__doc__)

JobId = Annotated[str, typer.Argument(help="Id of a job, or its first digits.", autocompletion=names_of("job"))]

_NEWEST = 200
_COLUMNS = (
    Column("ID", lambda job: job.id, lambda id: id[:8]),
    Column("Job", lambda job: job.title),
    Column("Status", lambda job: job.state),
    Column("Progress", percent_of, lambda percent: f"{percent} %"),
    Column("ETA", lambda job: job.eta_seconds, lambda seconds: "" if seconds is None else duration(seconds)),
    created_column(day),
    Column("Waits for", lambda job: job.waits_for),
)


@app.command("list")
@lists(_COLUMNS, empty="There is no job.", noun="job", limit=_NEWEST)
def list_all(
    status: Annotated[ShownState | None, typer.Option(help="Only jobs with this status.")] = None,
    kind: Annotated[str, typer.Option(help="Only jobs of this kind, such as evaluate.")] = "",
) -> list[JobCard]:
    """List jobs, the newest first."""
    from workbench.job_records.jobs import list_jobs
    from workbench.registry.database import reading

    with reading() as session:
        return list_jobs(session, state=status, kind=kind or None, limit=MOST)


@app.command("show")
def show(job: JobId, as_json: Json = False) -> None:
    """Show a job's spec, its progress and its events."""
    from workbench.job_records import jobs
    from workbench.registry.database import reading

    job_id = _find(job)
    with reading() as session:
        card, events = jobs.get_job(session, job_id), jobs.events(session, job_id)
    if as_json:
        print_json({"job": card, "events": events})
        return
    print_fields(card.model_dump(exclude={"created_at", "started_at", "finished_at"}))
    for event in events:
        say(f"{day(event.at)}  attempt {event.attempt}  {event.message}")


@app.command("log")
def log(
    job: JobId,
    lines: int = typer.Option(
        50, min=1, max=MOST, help="Lines to print, from the end; of another machine's log, of its last MiB."
    ),
    as_json: Json = False,
) -> None:
    """Print the end of the log of a job's process, on whichever machine it runs."""
    from jobs.attempt.job_log import is_newest_here, last_lines
    from jobs.attempt.work import log_path
    from workbench.settings import get_settings

    settings, job_id = get_settings(), _find(job)
    text = last_lines(settings, job_id, lines)
    if as_json:
        is_here = is_newest_here(settings, job_id)
        print_json({"path": log_path(settings, job_id) if is_here else None, "lines": text})
    else:
        say("\n".join(text) or "The log of this job is empty.")


@app.command("wait")
def wait(job: JobId, as_json: Json = False) -> None:
    """Wait until a job ends, with a progress bar."""
    report(follow(_find(job), as_json), as_json)


@app.command("metrics")
def metrics(
    job: JobId,
    metric: Annotated[
        list[str], typer.Option(metavar="NAME", help="Only this metric, such as loss or dev_loss; may be repeated.")
    ] = [],  # noqa: B006  # Typer's form of an option that may be repeated
    follow: Annotated[
        bool, typer.Option("--follow", help="Print new points as they come, until the job ends.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the points as CSV on stdout.")] = False,
    as_json: Json = False,
) -> None:
    """Print a job's curves: losses, gate weights and speeds by step; with --follow until the job ends."""
    from ui.cli.printing.metrics import follow_metrics, print_metrics, style_named

    style = style_named(as_json, as_csv)
    if follow:
        follow_metrics(_find(job), metric, style)
    else:
        print_metrics(_find(job), metric, style)


@app.command("cancel")
def cancel(job: JobId, as_json: Json = False) -> None:
    """Stop a job. Its checkpoints are kept: `workbench job retry` continues from the last one."""
    from jobs.queue.submit import request_stop

    _change(job, lambda job_id: request_stop(job_id, "cancel"), as_json)


@app.command("pause")
def pause(job: JobId, as_json: Json = False) -> None:
    """Stop a job at a checkpoint from which it can be resumed."""
    from jobs.queue.submit import request_stop

    _change(job, lambda job_id: request_stop(job_id, "pause"), as_json)


@app.command("resume")
def resume_job(job: JobId, as_json: Json = False) -> None:
    """Resume a paused job."""
    from jobs.queue.submit import resume

    _change(job, resume, as_json)


@app.command("retry")
def retry_job(job: JobId, as_json: Json = False) -> None:
    """Start a failed or cancelled job again, from its last checkpoint."""
    from jobs.queue.submit import retry

    _change(job, retry, as_json)


@app.command("priority", context_settings={"ignore_unknown_options": True})  # else -1 would be an option
def priority(
    job: JobId,
    number: int = typer.Argument(
        min=-1000, max=1000, help="The default is 0. The queued job with the highest number starts first."
    ),
    as_json: Json = False,
) -> None:
    """Set the priority of a queued job; running jobs are not interrupted."""
    from workbench.job_records.jobs import set_priority
    from workbench.registry.database import transaction

    job_id = _find(job)
    with transaction() as session:
        set_priority(session, job_id, number)
    print_done({"job": job_id, "priority": number}, f"{card_of(job_id).title}: priority {number}.", as_json)


@app.command("delete")
def delete(job: JobId, as_json: Json = False) -> None:
    """Delete an ended job with its log and checkpoints; its results are kept."""
    from jobs.queue.submit import delete as delete_job

    job_id = _find(job)
    title = card_of(job_id).title
    is_gone = delete_job(job_id)
    kept = "" if is_gone else " The job stays in the list, because one of its results or a later job refers to it."
    print_done(
        {"deleted": job_id, "in_list": not is_gone}, f"{title}: its log and checkpoints are deleted.{kept}", as_json
    )


def _change(job: str, act: Callable[[str], None], as_json: bool) -> None:
    job_id = _find(job)
    act(job_id)
    card = card_of(job_id)
    if as_json:
        print_json(card)
    elif card.stop_requested and card.state == "running":
        say(f"{card.title}: {card.stop_requested} requested, still running.\n{watch_line(job_id)}")
    else:
        say(f"{card.title}: {card.state}.")


def _find(start: str) -> str:
    """The id of the one job whose id begins so."""
    if len(start) == 32:
        return start
    from workbench.errors import NotFoundError
    from workbench.job_records.jobs import ids_from
    from workbench.registry.database import reading

    with reading() as session:
        ids = ids_from(session, start)
        if not ids:
            raise NotFoundError("job", start, (id[:8] for id in ids_from(session, "")))
    if len(ids) > 1:
        known = ", ".join(id[: len(start) + 4] for id in ids)
        raise BadUsageError(f"Job id “{start}” is ambiguous: {known}.", "Give more digits.")
    return ids[0]
