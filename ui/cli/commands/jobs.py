"""workbench jobs: what is asked for, what runs, what failed and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from engine.config import MOST
from ui.cli.job_progress import card_of, follow, report, watch_line
from ui.cli.options import Json
from ui.cli.output import day, print_done, print_fields, print_json, print_table, say, tell
from ui.errors import BadUsage
from ui.present.job_status import percent_of
from ui.present.text.formatting import duration, newest_of

app = typer.Typer(no_args_is_help=True, help="Jobs: watch, stop, resume, retry, hurry, delete.")

JobId = Annotated[str, typer.Argument(help="Id of a job, or its first digits.")]


@app.command("list")
def list_all(
    state: str = typer.Option("", help="Only jobs in this state, such as running or failed."),
    limit: int = typer.Option(200, min=1, max=MOST, help="Jobs to list at most."),
    as_json: Json = False,
) -> None:
    """Jobs, the newest first."""
    from workbench.job_records.jobs import count_by_state, list_jobs
    from workbench.registry.database import reading

    with reading() as session:
        cards = list_jobs(session, state=state or None, limit=limit)
        counts = count_by_state(session)
    if cut := newest_of(len(cards), counts.get(state, 0) if state else sum(counts.values()), "job"):
        tell(f"{cut} List more with --limit.")
    if as_json:
        print_json(cards)
    else:
        rows = [
            (
                one.id[:8],
                one.title,
                one.state,
                f"{percent_of(one)} %",
                duration(one.eta_seconds) if one.eta_seconds is not None else "",
                day(one.created_at),
            )
            for one in cards
        ]
        print_table(["Job", "Wish", "State", "Done", "Left", "Asked"], rows, empty="There is no such job.")


@app.command("show")
def show(job: JobId, as_json: Json = False) -> None:
    """One job: what was asked, how far it is, what happened so far."""
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
    lines: int = typer.Option(50, min=1, max=MOST, help="Lines to print, from the end."),
    as_json: Json = False,
) -> None:
    """The end of what a job's process wrote."""
    from workbench.settings import get_settings

    path = get_settings().jobs_folder / _find(job) / "log.txt"
    found = path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:] if path.is_file() else []
    if as_json:
        print_json({"path": path, "lines": found})
    else:
        say("\n".join(found) or "This job has written nothing yet.")


@app.command("wait")
def wait(job: JobId, as_json: Json = False) -> None:
    """Watch a job to its end, with a progress bar."""
    report(follow(_find(job), as_json), as_json)


@app.command("cancel")
def cancel(job: JobId, as_json: Json = False) -> None:
    """Stop a job; the work so far is kept, and `retry` goes on from there."""
    from jobs.queue.submit import request_stop

    _ask(job, lambda job_id: request_stop(job_id, "cancel"), as_json)


@app.command("pause")
def pause(job: JobId, as_json: Json = False) -> None:
    """Stop a job at a checkpoint from which it can go on."""
    from jobs.queue.submit import request_stop

    _ask(job, lambda job_id: request_stop(job_id, "pause"), as_json)


@app.command("resume")
def resume_job(job: JobId, as_json: Json = False) -> None:
    """Let a paused job go on from where it stopped."""
    from jobs.queue.submit import resume

    _ask(job, resume, as_json)


@app.command("retry")
def retry_job(job: JobId, as_json: Json = False) -> None:
    """Start a failed or cancelled job again, from its last checkpoint."""
    from jobs.queue.submit import retry

    _ask(job, retry, as_json)


@app.command("priority", context_settings={"ignore_unknown_options": True})  # else -1 would be an option
def priority(
    job: JobId,
    number: int = typer.Argument(
        min=-1000, max=1000, help="The usual is 0; of those that wait, the highest starts first."
    ),
    as_json: Json = False,
) -> None:
    """Let a job start before or after others that wait; what runs keeps running."""
    from workbench.job_records.jobs import set_priority
    from workbench.registry.database import transaction

    job_id = _find(job)
    with transaction() as session:
        set_priority(session, job_id, number)
    print_done({"job": job_id, "priority": number}, f"{card_of(job_id).title}: priority {number}.", as_json)


@app.command("delete")
def delete(job: JobId, as_json: Json = False) -> None:
    """Delete an ended job with its log and checkpoints; what it made stays."""
    from jobs.queue.submit import delete as delete_job

    job_id = _find(job)
    title = card_of(job_id).title
    has_gone = delete_job(job_id)
    stays = "" if has_gone else " The job stays in the list, because something it made or a later job names it."
    print_done(
        {"deleted": job_id, "in_list": not has_gone}, f"{title}: its log and checkpoints are deleted.{stays}", as_json
    )


def _ask(job: str, act: Callable[[str], None], as_json: bool) -> None:
    job_id = _find(job)
    act(job_id)
    card = card_of(job_id)
    if as_json:
        print_json(card)
    elif card.stop_requested and card.state == "running":
        say(f"{card.title}: asked to {card.stop_requested}, still running.\n{watch_line(job_id)}")
    else:
        say(f"{card.title}: {card.state}.")


def _find(start: str) -> str:
    """The id of the one job whose id begins so."""
    if len(start) == 32:
        return start
    from workbench.errors import NotFound
    from workbench.job_records.jobs import ids_from
    from workbench.registry.database import reading

    with reading() as session:
        found = ids_from(session, start)
        if not found:
            raise NotFound("job", start, (one[:8] for one in ids_from(session, "")))
    if len(found) > 1:
        raise BadUsage(
            f"The id of a job must be unmistakable, but several jobs begin with “{start}” instead.",
            "Give more digits.",
        )
    return found[0]
