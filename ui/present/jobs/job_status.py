"""The text, colour and actions of a job's state, unfinished jobs by their turn, and who uses each GPU.

A stop request is not a stop, a lost process is not running.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from ui.present.text.formatting import duration, listed, pluralize, size
from workbench.answers.cards import DeviceCard, JobCard
from workbench.schema.job_states import FINISHED, UNFINISHED, ShownState

if TYPE_CHECKING:
    from workbench.kinds.kind import FirstStep

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


def describe_cancel(dependents: Sequence[str]) -> str:
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


def gpu_row(device: DeviceCard) -> dict[str, str]:
    """One GPU as a row."""
    return {
        "GPU": f"{device.host}/{device.number}",
        "Model": device.name or "pretended",
        "Memory": size(device.memory_bytes) if device.memory_bytes else "",
        "Job": holders_of(device),
        "API server": ", ".join(f"{tenant.address}, at most {size(tenant.most_bytes)}" for tenant in device.tenants),
        "Status": status_of(device),
    }


def holders_of(device: DeviceCard) -> str:
    """The titles of the jobs that have leased it, each with its share where that is not all."""
    parts = [holder.title if holder.share == 1 else f"{holder.title} ({holder.share:.0%})" for holder in device.holders]
    return ", ".join(parts)


def status_of(device: DeviceCard) -> str:
    """Whether a job has leased the GPU, or could."""
    if device.holders:
        used = f"{1.0 - device.free_share:.0%}"
        return "in use" if used == "100%" else f"{used} in use"
    if device.is_lost:
        return "cannot be used any more"
    return "free" if device.is_there else "its worker is gone"


def by_turn(jobs: Sequence[JobCard]) -> list[JobCard]:
    """Unfinished jobs, running ones first, then the others by the time they were created."""
    unfinished = [job for job in jobs if not is_over(job)]
    return sorted(unfinished, key=lambda job: (UNFINISHED.index(job.state), job.created_at))


def coming(jobs: Sequence[JobCard], kind: str, mixture: str | None = None) -> JobCard | None:
    """The unfinished job of a kind, and of a mixture if one is given, whose turn is first; None if there is none."""
    of_kind = (job for job in by_turn(jobs) if job.kind == kind)
    return next((job for job in of_kind if mixture is None or job.spec.get("mixture") == mixture), None)


def bringing(jobs: Sequence[JobCard], step: FirstStep) -> JobCard | None:
    """The unfinished job whose turn is first, of a kind that brings what a new workbench lacks."""
    return next((job for job in by_turn(jobs) if step_of(job) == step), None)


def step_of(job: JobCard) -> FirstStep:
    """What a job brings of what a new workbench lacks; empty also where its kind is not installed."""
    from workbench.kinds.kind import known_kinds  # the help of a command needs no kinds

    kind = known_kinds().get(job.kind)
    return kind.first_step if kind else ""


def describe_coming_job(job: JobCard, jobs: Sequence[JobCard]) -> str:
    """How far a job on its way is: `“Train” is running, about 3 min 20 s left.`"""
    if job.state == "paused":
        return f"“{job.title}” is paused: resume it."
    if job.state != "queued":
        left = f", {time_left(job)}" if job.eta_seconds is not None else ""
        return f"“{job.title}” is {job.state}{left}."
    if job.waits_for:
        return f"“{job.title}” is queued. {job.waits_for}"
    before = by_turn(jobs).index(job)
    return f"“{job.title}” waits for its turn" + (f" behind {pluralize(before, 'job')}." if before else ".")
