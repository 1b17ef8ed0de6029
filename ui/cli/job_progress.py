"""Runs the job of a command: submits it, or runs it in this process; waits, and prints the result."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from ui.cli.options import RunOptions
from ui.cli.output import print_json, print_note, say, shown
from ui.present.jobs.job_status import percent_of, time_left
from ui.present.jobs.throughput import throughput_words
from ui.present.text.formatting import duration
from workbench.schema.job_states import UNSUCCESSFUL

if TYPE_CHECKING:
    from workbench.answers.cards import JobCard
    from workbench.specs.base import Spec

REDRAW_SECONDS = 0.5
# of a result, shown otherwise or for programs
MEASURED = {"throughput", "environment", "row_order", "reasons", "num_left_out"}
STATES = {"queued": "waiting for a worker (`workbench up` starts one)"}


def submit(spec: Spec, run_options: RunOptions, after: Sequence[str] = ()) -> JobCard:
    """Queues a job, or runs it in this process, and prints the outcome. A queued job waits for the jobs `after`."""
    for note in _advice(spec):
        print_note(note)
    if run_options.in_process:
        card = run_in_process(spec, run_options.json)
    else:
        card = queue(spec, after)
        card = follow(card.id, run_options.json) if run_options.wait else card
    report(card, run_options.json)
    return card


def _advice(spec: Spec) -> list[str]:
    from workbench.job_records.preconditions import advice_on, validate_against_registry, without_aliases
    from workbench.registry.database import reading

    with reading() as session:
        spec = without_aliases(session, spec)
        validate_against_registry(session, spec)  # no advice on what is refused
        return advice_on(session, spec)


def report(card: JobCard, as_json: bool) -> None:
    """Prints the state of a job; raises JobFailedError if it failed or was cancelled.

    The command exits with code 1 if the job is done and reports that a check failed.
    """
    if card.state not in UNSUCCESSFUL:
        _print_state(card, as_json)
    exit_as(card)


def exit_as(card: JobCard) -> None:
    """Raises JobFailedError if the job failed or was cancelled; exits with code 1 if it reports that a check failed."""
    if card.state in UNSUCCESSFUL:
        from ui.present.jobs.job_failure import failure_of

        raise failure_of(card)
    if card.state == "done" and card.result.get("ok") is False:
        raise typer.Exit(1)


def _print_state(card: JobCard, as_json: bool) -> None:
    if as_json:
        print_json(card)
    elif card.state == "done":
        say(f"{card.title}: done in {duration(_seconds(card))}. {_result_words(card.result)}".rstrip())
        if measured := card.result.get("throughput"):
            say(throughput_words(measured))
    else:
        say(f"{card.title}: {card.state} as job {card.id}.\n{watch_line(card.id)}")
        if card.state == "queued" and not _has_local_worker():
            print_note("No worker runs on this machine. Start one with: workbench up")


def _result_words(result: Mapping[str, Any]) -> str:
    """A job's own sentence, or its known values by readable names: “documents 48” for `num_documents`."""
    if sentence := result.get("sentence"):
        return str(sentence)
    known = {name: value for name, value in result.items() if name not in MEASURED and value not in (None, "")}
    sentences = [value for value in known.values() if str(value).endswith(".")]  # they need no name
    named = {_readable(name): value for name, value in known.items() if value not in sentences}
    first = f"{shown(named)}{'.' if sentences else ''}" if named else ""
    return " ".join([first, *sentences]).strip()


def _readable(name: str) -> str:
    return name.removeprefix("num_").replace("_", " ")


def follow(job_id: str, quiet: bool = False) -> JobCard:
    """Waits until a job ends, with a progress bar and its ETA on stderr; returns its last card."""
    from jobs.queue.submit import wait

    card = None
    with _bar(quiet) as draw:
        try:
            for card in wait(job_id, REDRAW_SECONDS):
                draw(card)
        except KeyboardInterrupt:
            print_note(f"The job keeps running. Stop it with: workbench job cancel {job_id}")
            raise
    assert card is not None, "waiting gives at least one card"
    return card


def queue(spec: Spec, after: Sequence[str] = ()) -> JobCard:
    """Submits a job to the queue."""
    from jobs.queue.submit import submit as send

    return card_of(send(spec, after=after))


def run_in_process(spec: Spec, quiet: bool) -> JobCard:
    """Runs a job in this process, with its notes and a progress bar unless `quiet`; returns its last card."""
    from engine.events import Note
    from jobs.queue.submit import run_now

    job_id, events = run_now(spec)
    with _bar(quiet) as draw:
        drawn_at = 0.0
        for event in events:
            if isinstance(event, Note) and not quiet:
                print_note(event.sentence)
            if time.monotonic() - drawn_at > REDRAW_SECONDS:
                draw(card_of(job_id))
                drawn_at = time.monotonic()
        draw(card_of(job_id))
    return card_of(job_id)


@contextmanager
def _bar(quiet: bool) -> Iterator[Any]:
    """Yields a function that draws a job's card."""
    from ui.cli.progress_bar import progress_bar

    with progress_bar(quiet) as show:

        def draw(card: JobCard) -> None:
            rest = " · ".join(filter(None, (STATES.get(card.state, card.state), time_left(card), card.progress_note)))
            show(f"{card.title} {percent_of(card)} % {rest}", card.progress)

        yield draw


def card_of(job_id: str) -> JobCard:
    """The current card of a job."""
    from workbench.job_records.jobs import get_job
    from workbench.registry.database import reading

    with reading() as session:
        return get_job(session, job_id)


def _has_local_worker() -> bool:
    from ui.serving.processes import WORKER, runs
    from workbench.settings import get_settings

    return runs(WORKER, get_settings())


def watch_line(job_id: str) -> str:
    """The command that waits for a job."""
    return f"Wait for it with: workbench job wait {job_id}"


def _seconds(card: JobCard) -> float:
    return (card.finished_at or time.time()) - (card.started_at or card.created_at)
