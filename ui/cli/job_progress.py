"""Runs the job of a command: submits it, or runs it in this process; waits, and prints the result."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, cast

import typer

from ui.cli.options import RunOptions
from ui.cli.output import as_text, print_json, print_note, say
from ui.present.jobs.job_status import percent_of, time_left
from ui.present.jobs.throughput import describe_throughput
from ui.present.terminal import harmless
from ui.present.text.formatting import duration
from workbench.formatting.shell_command import evaluate_command
from workbench.schema.job_states import UNSUCCESSFUL

if TYPE_CHECKING:
    from workbench.answers.cards import JobCard
    from workbench.answers.forecasts import Forecast
    from workbench.specs.base import Spec


Draw = Callable[[str, float], None]  # what is done now, and the share that is done
FIRST_SECONDS, LONGEST_SECONDS = 5.0, 60.0  # between two lines; a long run has fewer of them


@contextmanager
def progress_bar(quiet: bool) -> Iterator[Draw]:
    """Yields a function that shows progress; without a terminal it prints plain lines."""
    if not quiet and not sys.stderr.isatty():
        lines = ProgressLines()
        yield lines.draw
        lines.end()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (BarColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as progress:
        bar = progress.add_task("starting", total=1.0)
        yield lambda words, share: progress.update(bar, description=harmless(words), completed=share)


class ProgressLines:
    """Prints the first state, then one after 5 seconds, 10, 20, … and at most a minute, and the last."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, write: Callable[[str], None] = print_note) -> None:
        self._clock, self._write = clock, write
        self._started_at = self._printed_at = clock()
        self._pause = 0.0
        self._words, self._share, self._first_share = "", 0.0, 0.0
        self._is_printed = True

    def draw(self, words: str, share: float) -> None:
        """Prints the state if it is time to."""
        if not self._pause:
            self._first_share = share  # what was done before this command is not its pace
        self._words, self._share, self._is_printed = words, share, False
        if self._clock() - self._printed_at >= self._pause:
            self._print()
            self._pause = min(max(FIRST_SECONDS, 2 * self._pause), LONGEST_SECONDS)

    def end(self) -> None:
        """Prints the last state if it was not."""
        if not self._is_printed:
            self._print()

    def _print(self) -> None:
        spent = self._clock() - self._started_at
        self._write(f"[{self._share:4.0%}] {self._words}{self._time_left(spent)}")
        self._printed_at, self._is_printed = self._clock(), True

    def _time_left(self, spent: float) -> str:
        """`, about 3 min left`, at the pace so far; nothing before there is one."""
        gained = self._share - self._first_share
        if gained <= 0 or self._share >= 1 or "left" in self._words:
            return ""
        return f", about {duration(spent * (1 - self._share) / gained)} left"


REDRAW_SECONDS = 0.5
# of a result, shown otherwise or for programs
MEASURED = {"throughput", "worse", "environment", "row_order", "reasons", "num_left_out"}
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


def queue_follow_up(spec: Spec, run_options: RunOptions, card: JobCard) -> None:
    """Queues the job that scores what a training makes; of a training in this process it says the command instead."""
    from jobs.queue.submit import submit_follow_up
    from workbench.job_records.preconditions import kind_of
    from workbench.kinds.analysis import Evaluate

    if not run_options.in_process:
        if scoring_id := submit_follow_up(spec, card.id):
            print_note(f"Its experts are scored afterwards, by job {scoring_id}.")
    elif isinstance(follow_up := kind_of(spec).follow_up(spec), Evaluate):
        print_note(f"Score its experts with: {evaluate_command(follow_up.mixture)}")


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
        from ui.present.jobs.failure_text import failure_of

        raise failure_of(card)
    if card.state == "done" and card.result.get("ok") is False:
        raise typer.Exit(1)


def _print_state(card: JobCard, as_json: bool) -> None:
    if as_json:
        print_json(card)
    elif card.state == "done":
        seconds = (card.finished_at or time.time()) - (card.started_at or card.created_at)
        say(f"{card.title}: done in {duration(seconds)}. {_describe_result(card.result)}".rstrip())
        if measured := card.result.get("throughput"):
            say(describe_throughput(measured))
        if worse := card.result.get("worse"):
            print_note(worse)
    else:
        say(f"{card.title}: {card.state} as job {card.id}.\n{watch_line(card.id)}")
        from ui.serving.processes import WORKER, runs
        from workbench.settings import get_settings

        if card.state == "queued" and not runs(WORKER, get_settings()):
            print_note("No worker runs on this machine. Start one with: workbench up")


def _describe_result(result: Mapping[str, Any]) -> str:
    """A job's own sentence, or its known values by readable names: “documents 48” for `num_documents`."""
    if sentence := result.get("sentence"):
        return str(sentence)
    known = {name: value for name, value in result.items() if name not in MEASURED and value not in (None, "")}
    sentences = [value for value in known.values() if str(value).endswith(".")]  # they need no name
    named = {
        name.removeprefix("num_").replace("_", " "): value for name, value in known.items() if value not in sentences
    }
    first = f"{as_text(named)}{'.' if sentences else ''}" if named else ""
    return " ".join([first, *sentences]).strip()


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


def watch_line(job_id: str) -> str:
    """The command that waits for a job."""
    return f"Wait for it with: workbench job wait {job_id}"


def show_progress(ids: Sequence[str], in_process: bool, quiet: bool) -> None:
    """Shows a progress bar on stderr until all jobs have ended; with `in_process`, runs them in child processes."""
    from jobs.queue.tasks import run_jobs, watch

    stream = cast("Generator[list[JobCard], None, None]", run_jobs(ids) if in_process else watch(ids))
    with progress_bar(quiet) as draw, closing(stream):
        try:
            for cards in stream:
                shares = [1.0 if card.state == "done" else card.progress for card in cards]
                draw(line(cards), sum(shares) / len(cards))
        except KeyboardInterrupt:
            print_note("Stopped. Run the same command again to continue.")
            raise


def line(cards: Sequence[JobCard]) -> str:
    """The number of finished jobs, and those that are running or wait for a worker."""
    done = sum(card.state == "done" for card in cards)
    running = [f"{card.title} {percent_of(card)} %" for card in cards if card.state == "running"]
    began = min((card.started_at for card in cards if card.started_at), default=None)
    ended = max((card.finished_at or 0.0 for card in cards), default=0.0)
    spent = f" in {duration(ended - began)}" if began and ended > began else ""
    waiting = ["waiting for a worker"] if any(card.state == "queued" for card in cards) else []
    return " · ".join([f"{done} of {len(cards)} jobs done{spent}", *(running or waiting)])


def print_forecast(stages: Generator[str, None, Forecast], spec: type[Spec], as_json: bool) -> None:
    """Runs the probe with a progress line and prints what the job will take; exits with 1 unless it fits."""
    forecast = _await_forecast(stages, as_json)
    if as_json:
        print_json(forecast)
    else:
        _print(forecast, spec)
    if not forecast.fits:
        raise typer.Exit(1)


def _await_forecast(stages: Generator[str, None, Forecast], quiet: bool) -> Forecast:
    with progress_bar(quiet) as draw, closing(stages):
        while True:
            try:
                draw(f"Probe: {next(stages)}", 0.0)
            except StopIteration as end:
                forecast: Forecast = end.value
                return forecast


def _print(forecast: Forecast, spec: type[Spec]) -> None:
    from ui.present.forms.job_forecast import describe_row, nearest_options_text, row_text, rows_of

    say(f"{forecast.title}, by a probe of {duration(forecast.probe_seconds)}:")
    for name, value in rows_of(forecast):
        say(f"  {name:<12}{value}")
    if forecast.problem:
        say(f"  {forecast.problem} {nearest_options_text(forecast, spec)}")
    if forecast.measured:
        for number, row in enumerate(forecast.measured.first_batch[:1], 1):
            say(f"{describe_row(row, number)} Its beginning, as the model reads it:\n{row_text(row)}")
    if forecast.command:
        say(f"The same job: {forecast.command}")
    if forecast.request:
        say(f"And over HTTP: {forecast.request}")
