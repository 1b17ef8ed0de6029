"""Health checks of what the studio needs: each part with a sentence and, if needed, the next step."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from ui.errors import ServerDownError, ServerRefusedError
from ui.present.text.formatting import duration, pluralize, size
from ui.serving.doctor import ENOUGH_BYTES, least_free, run_check, trashed_bytes
from ui.serving.processes import WORKER, runs
from ui.widgets.background import kept_client
from workbench.answers.cards import JobCard
from workbench.answers.server import Health
from workbench.settings import Settings, get_settings

API_SERVER = "API server"
PATIENCE_SECONDS = 20.0  # a queued job is due to start well within this, when somebody works


@dataclass(frozen=True)
class Sign:
    """The health of one part: `is_well` is None where it is unknown."""

    part: str
    is_well: bool | None
    sentence: str
    next_step: str = ""


def signs_of_health(settings: Settings, jobs: Sequence[JobCard]) -> list[Sign]:
    """API server, worker, device and disk; the artifacts only where something is wrong with them."""
    api, device = api_signs(settings)
    return [api, worker_sign(jobs), device, disk_sign(settings), *artifacts_signs(settings)]


def api_signs(settings: Settings) -> tuple[Sign, Sign]:
    """The health of the API server, and of the device that it computes on."""
    try:
        answer = kept_client(settings).health()
    except (ServerDownError, ServerRefusedError) as problem:
        away = Sign(API_SERVER, False, problem.problem, problem.next_step)
        return away, Sign("Device", None, f"requested “{settings.device}”; known once the API server answers")
    held = f"{pluralize(len(answer.loaded), 'model')} in memory" if answer.loaded else "no model in memory yet"
    return Sign(API_SERVER, True, f"answers; {held}"), device_sign(answer)


def device_sign(answer: Health) -> Sign:
    """The device, from the API server's health."""
    if answer.device is None:
        return Sign("Device", None, f"requested “{answer.requested_device}”; known once a model is loaded")
    return Sign("Device", True, f"computes on “{answer.device}”")


def worker_sign(jobs: Sequence[JobCard], now: float | None = None) -> Sign:
    """The worker's health, derived from the jobs: a live lease proves that one runs, a job left waiting does not."""
    now = time.time() if now is None else now
    if any(job.state == "running" for job in jobs):
        return Sign("Worker", True, "at work")
    silent = [job for job in jobs if job.state == "interrupted"]
    if silent:
        return Sign(
            "Worker", False, "a running job has stopped sending heartbeats", "See that `workbench up` is still running."
        )
    waiting = [now - job.created_at for job in jobs if job.state == "queued" and not job.after]
    if waiting and max(waiting) > PATIENCE_SECONDS:
        detail = f"no worker has taken a job that was created {duration(max(waiting))} ago"
        return Sign("Worker", False, detail, "Start it with `workbench up`.")
    if worker_is_running():  # idle: it is looked up among this machine's processes
        return Sign("Worker", True, "waits for jobs")
    return Sign("Worker", None, "none runs on this machine", "Start it with `workbench up`, unless one runs elsewhere.")


@st.cache_data(ttl=10, show_spinner=False)
def worker_is_running() -> bool:
    """Whether a process of this machine is a worker of this home."""
    return runs(WORKER, get_settings())


def disk_sign(settings: Settings) -> Sign:
    """The health of the disks that hold the home and the artifacts: the fuller one counts."""
    free, folder = least_free(settings)
    if free < ENOUGH_BYTES:
        trash = _trashed_bytes(settings)
        empty = f" `workbench registry trash empty` frees {size(trash)}." if trash else ""
        step = f"Free some space: a full disk pauses jobs.{empty}"
        return Sign("Disk", False, f"only {size(free)} free at {folder}", step)
    return Sign("Disk", True, f"{size(free)} free")


@st.cache_data(ttl=60, show_spinner=False)  # it may hold very many files
def _trashed_bytes(_settings: Settings) -> int:
    return trashed_bytes(_settings)


@st.cache_data(ttl=60, show_spinner=False)  # the page looks every two seconds, and there may be many artifacts
def artifacts_signs(_settings: Settings) -> list[Sign]:
    """A sign for artifacts that do not belong to this registry, or whose rows it lost; empty if there are none."""
    finding = run_check("Artifacts", _settings)
    return [] if finding.ok else [Sign("Artifacts", False, finding.finding, finding.next_step)]
