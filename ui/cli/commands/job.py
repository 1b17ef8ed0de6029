"""Jobs: list, show, wait for, pause, resume, cancel, retry and delete them; print their curves."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from engine.config import MOST
from ui.cli.job_progress import REDRAW_SECONDS, card_of, exit_as, follow, report, watch_line
from ui.cli.options import Json, naming_argument
from ui.cli.output import as_text, day, print_fields, print_json, print_note, print_table, print_text, say
from ui.cli.verbs import CREATED, Column, CommandGroup, Outcome, lists, read, write
from ui.errors import BadUsageError
from ui.present.jobs.job_status import percent_of
from ui.present.terminal import harmless_json
from ui.present.text.formatting import duration
from workbench.answers.cards import JobCard
from workbench.schema.job_states import STOPPED, ShownState

if TYPE_CHECKING:
    from workbench.analysis.training_curves import MetricValue

app = CommandGroup(__doc__)

JobId = Annotated[str, naming_argument("Id of a job, or its first digits.", "job")]

_NEWEST = 200
Style = Literal["text", "csv", "json"]
_COLUMNS = (
    Column("ID", lambda job: job.id, lambda id: id[:8]),
    Column("Job", lambda job: job.title),
    Column("Status", lambda job: job.state),
    Column("Progress", percent_of, lambda percent: f"{percent} %"),
    Column("ETA", lambda job: job.eta_seconds, lambda seconds: "" if seconds is None else duration(seconds)),
    CREATED,
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

    return read(list_jobs, state=status, kind=kind or None, limit=MOST)


@app.verb()
def show(job: JobId) -> Outcome:
    """Show a job's spec, its progress and its events."""
    from workbench.job_records.jobs import events

    job_id = _find(job)
    return Outcome({"job": card_of(job_id), "events": read(events, job_id)}, _print)


def _print(shown: dict[str, Any]) -> None:
    print_fields(shown["job"].model_dump(exclude={"created_at", "started_at", "finished_at"}))
    for event in shown["events"]:
        say(f"{day(event.at)}  attempt {event.attempt}  {event.message}")


@app.verb()
def log(
    job: JobId,
    lines: int = typer.Option(
        50, min=1, max=MOST, help="Lines to print, from the end; of another machine's log, of its last MiB."
    ),
) -> Outcome:
    """Print the end of the log of a job's process, on whichever machine it runs."""
    from jobs.attempt.job_log import is_newest_here, last_lines
    from jobs.attempt.work import log_path
    from workbench.settings import get_settings

    settings, job_id = get_settings(), _find(job)
    text = last_lines(settings, job_id, lines)
    path = log_path(settings, job_id) if is_newest_here(settings, job_id) else None
    return Outcome({"path": path, "lines": text}, "\n".join(text) or "The log of this job is empty.")


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
    if as_json and as_csv:
        raise BadUsageError("The options --json and --csv exclude each other.", "Give one of them.")
    show = _follow_metrics if follow else _print_metrics
    show(_find(job), metric, "json" if as_json else "csv" if as_csv else "text")


def _print_metrics(job_id: str, names: Collection[str], style: Style) -> None:
    from ui.present.csv_text import HEADER, csv_rows
    from workbench.analysis.training_curves import job_metrics

    answer = read(job_metrics, job_id, names)
    if style == "json":
        print_json(answer)
    elif style == "csv":
        print_text(HEADER + csv_rows(answer.points))
    else:
        rows = [(one.metric, one.step, one.value, one.unit) for one in answer.points]
        print_table(["Metric", "Step", "Value", "Unit"], rows, empty="There are no points.")


def _follow_metrics(job_id: str, names: Collection[str], style: Style) -> None:
    """Prints a line for each new point until the job has stopped, then ends as `workbench job wait` does."""
    from ui.present.csv_text import HEADER, csv_rows
    from workbench.analysis.training_curves import MetricTail

    lines: dict[Style, Callable[[MetricValue], str]] = {
        "text": lambda point: (
            f"step {point.step:,} · {point.metric} {as_text(point.value)} {point.unit}".rstrip() + "\n"
        ),
        "csv": lambda point: csv_rows([point]),
        "json": lambda point: harmless_json(point.model_dump_json()) + "\n",
    }
    if style == "csv":
        print_text(HEADER)
    tail, state = MetricTail(job_id, names), ""
    while state not in STOPPED:
        if state:
            time.sleep(REDRAW_SECONDS)
        answer = read(tail.read)
        print_text("".join(map(lines[style], answer.points)))
        state = answer.state
    card = card_of(job_id)
    if state == "paused":
        print_note(f"{card.title} is paused. Resume it with: workbench job resume {job_id}")
    exit_as(card)


@app.verb()
def cancel(job: JobId) -> Outcome:
    """Stop a job. Its checkpoints are kept: `workbench job retry` continues from the last one."""
    return _change(job, "request_stop", how="cancel")


@app.verb()
def pause(job: JobId) -> Outcome:
    """Stop a job at a checkpoint from which it can be resumed."""
    return _change(job, "request_stop", how="pause")


@app.verb("resume")
def resume_job(job: JobId) -> Outcome:
    """Resume a paused job."""
    return _change(job, "resume")


@app.verb("retry")
def retry_job(job: JobId) -> Outcome:
    """Start a failed or cancelled job again, from its last checkpoint."""
    return _change(job, "retry")


@app.verb(context_settings={"ignore_unknown_options": True})  # else -1 would be an option
def priority(
    job: JobId,
    number: int = typer.Argument(
        min=-1000, max=1000, help="The default is 0. The queued job with the highest number starts first."
    ),
) -> Outcome:
    """Set the priority of a queued job; running jobs are not interrupted."""
    from workbench.job_records.jobs import set_priority

    job_id = _find(job)
    write(set_priority, job_id, number)
    return Outcome({"job": job_id, "priority": number}, f"{card_of(job_id).title}: priority {number}.")


@app.verb()
def delete(job: JobId) -> Outcome:
    """Delete an ended job with its log and checkpoints; its results are kept."""
    from jobs.queue.submit import delete as delete_job

    job_id = _find(job)
    title = card_of(job_id).title
    is_gone = delete_job(job_id)
    kept = "" if is_gone else " The job stays in the list, because one of its results or a later job refers to it."
    sentence = f"{title}: its log and checkpoints are deleted.{kept}"
    return Outcome({"deleted": job_id, "in_list": not is_gone}, sentence)


def _change(job: str, act: Literal["request_stop", "resume", "retry"], **options: str) -> Outcome:
    from jobs.queue import submit

    job_id = _find(job)
    getattr(submit, act)(job_id, **options)
    card = card_of(job_id)
    if card.stop_requested and card.state == "running":
        return Outcome(card, f"{card.title}: {card.stop_requested} requested, still running.\n{watch_line(job_id)}")
    return Outcome(card, f"{card.title}: {card.state}.")


def _find(start: str) -> str:
    """The id of the one job whose id begins so."""
    if len(start) == 32:
        return start
    from workbench.errors import NotFoundError
    from workbench.job_records.jobs import ids_from

    ids = read(ids_from, start)
    if not ids:
        raise NotFoundError("job", start, (id[:8] for id in read(ids_from, "")))
    if len(ids) > 1:
        known = ", ".join(id[: len(start) + 4] for id in ids)
        raise BadUsageError(f"Job id “{start}” is ambiguous: {known}.", "Give more digits.")
    return ids[0]
