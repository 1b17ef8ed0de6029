"""The text, colour and actions of a job's state: a stop request is not a stop, a lost process is not running."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from ui.present.text.formatting import duration, listed, pluralize
from workbench.answers.cards import JobCard
from workbench.schema.job_states import FINISHED, ShownState

Colour = Literal["green", "blue", "orange", "red", "gray", "violet"]


class StateStyle(NamedTuple):
    """How a state is shown: a word, a colour and an icon, so that colour is never the only sign."""

    word: str
    colour: Colour
    icon: str


_LOOKS: dict[ShownState, StateStyle] = {
    "queued": StateStyle("queued", "gray", ":material/schedule:"),
    "running": StateStyle("running", "blue", ":material/play_arrow:"),
    "interrupted": StateStyle("interrupted", "orange", ":material/warning:"),
    "paused": StateStyle("paused", "violet", ":material/pause:"),
    "done": StateStyle("done", "green", ":material/check:"),
    "failed": StateStyle("failed", "red", ":material/error:"),
    "cancelled": StateStyle("cancelled", "gray", ":material/block:"),
}
_STOPPING = {
    "cancel": StateStyle("stopping (cancel requested)", "orange", ":material/hourglass_top:"),
    "pause": StateStyle("stopping (pause requested)", "orange", ":material/hourglass_top:"),
}

# In the order of their places: a second click where Pause was must never meet Cancel.
_ACTIONS: dict[ShownState, tuple[str, ...]] = {
    "queued": ("pause", "cancel"),
    "running": ("pause", "cancel"),
    "interrupted": ("pause", "cancel"),
    "paused": ("resume", "cancel"),
    "failed": ("retry",),
    "cancelled": ("retry",),
    "done": (),
}


def style_of(job: JobCard) -> StateStyle:
    """The word, colour and icon of a job as it stands."""
    if job.state == "running" and job.stop_requested in _STOPPING:
        return _STOPPING[job.stop_requested]
    return _LOOKS[job.state]


def is_over(job: JobCard) -> bool:
    """Whether the job has ended: only a retry runs it again."""
    return job.state in FINISHED


def actions_of(job: JobCard) -> tuple[str, ...]:
    """The actions that are possible now."""
    if job.stop_requested == "cancel":  # nothing takes a cancel back
        return ()
    return tuple(action for action in _ACTIONS[job.state] if action != job.stop_requested)


def places_of(job: JobCard) -> dict[str, bool]:
    """Every button in order, and whether it is enabled: a pressed button keeps its place."""
    possible = actions_of(job)
    return {action: action in possible for action in _ACTIONS[job.state]}


def cancel_words(dependents: Sequence[str]) -> str:
    """Which jobs a cancel also ends, since they wait for this one, and what Retry does then."""
    if not dependents:
        return "Retry resumes it from its last checkpoint."
    verb = "waits" if len(dependents) == 1 else "wait"
    waiting = f"{pluralize(len(dependents), 'job')} that {verb} for it: {listed(list(dependents), 4)}"
    return f"This also cancels {waiting}. Retry queues all of them again, this one from its last checkpoint."


def percent_of(job: JobCard) -> int:
    """The progress of a job in percent; 100 only when it is done."""
    return 100 if job.state == "done" else min(int(job.progress * 100), 99)


def sentence_of(job: JobCard) -> str:
    """The job's status as a sentence, with the time left if known."""
    if job.state == "queued":
        return job.waits_for or "Waiting for a free worker."
    if job.state == "interrupted":
        return "Its process sends no heartbeat; the job returns to the queue and restarts from its last checkpoint."
    if job.state == "running" and job.stop_requested:
        return "Stop requested; the job counts as stopped only when its process has ended."
    if job.state == "paused":
        return "Paused; resume it to continue from its last checkpoint."
    return " · ".join(filter(None, (job.progress_note, time_left(job)))) or "Starting."


def time_left(job: JobCard) -> str:
    """`about 5 min left`, or `2 min to 5 min left` where the speed varied; empty while nothing is known."""
    eta = eta_range(job)
    return f"{eta} left" if " to " in eta else eta and f"about {eta} left"


def eta_range(job: JobCard) -> str:
    """The same for a column ETA: `5 min`, or `2 min to 5 min`."""
    if job.eta_seconds is None:
        return ""
    eta = duration(job.eta_seconds, to_minutes=True)
    soonest, latest = (
        eta if seconds is None else duration(seconds, to_minutes=True) for seconds in (job.eta_soonest, job.eta_latest)
    )
    return eta if soonest == latest else f"{soonest} to {latest}"
