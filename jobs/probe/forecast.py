"""The forecast of a job: runs its probe in a process of its own, and compares what it takes with what is free."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from threading import Lock
from typing import Any

import psutil

from engine.device import left_in_container, megabytes
from jobs.probe.probe_run import POLL_SECONDS, START_ANYWAY, End, FreeBytes, run_probe
from jobs.probe.processes import Places, place_on_machines, places_of, processes_of, with_processes
from workbench.answers.forecasts import Forecast, Measured, MemoryParts, TimeParts
from workbench.errors import BadSpecError
from workbench.job_records.devices import list_devices
from workbench.job_records.preconditions import kind_of, settled, validate_against_registry
from workbench.registry import database
from workbench.settings import Settings, get_settings
from workbench.specs.base import Spec
from workbench.store.storage import free_bytes


def limits_now(settings: Settings) -> FreeBytes:
    """Memory that is available, in a container what its limit leaves, and the disk of artifacts or of checkpoints."""
    memory = int(psutil.virtual_memory().available)
    with suppress(OSError, ValueError):
        memory = min(memory, left_in_container())
    return FreeBytes(max(memory, 0), min(map(free_bytes, (settings.artifacts_folder, settings.root))))


MOST_SECONDS = 120.0  # of all probes of one forecast, without those in which one says that it has come further
WAITING = "waiting for another probe"

_one_at_a_time = Lock()  # two would slow each other down


Changes = dict[str, int | bool]  # options of a training and their new values


def forecast(
    spec: Spec, settings: Settings | None = None, *, limits: FreeBytes | None = None, max_seconds: float = MOST_SECONDS
) -> Generator[str, None, Forecast]:
    """Yields the stage of the probe ten times a second, and returns the forecast. Closing it stops the probe.

    `limits` are what is free, by default on this machine now. Raises BadSpecError for a job that could not be
    submitted, and for one whose kind has no probe.
    """
    settings = settings or get_settings()
    kind = kind_of(spec)
    if kind.probe is None:
        raise BadSpecError(
            [f"A job of the kind “{kind.name}” has no forecast: nothing of it can be measured beforehand."]
        )
    with database.reading(settings) as session:
        validate_against_registry(session, spec)
        devices, spec = list_devices(session), settled(session, spec)
    places = places_of(getattr(spec, "num_gpus", 0), settings, devices)
    spec = with_processes(spec, settings)
    began = time.monotonic()
    until = began + max_seconds
    probe = kind.probe(spec)
    yield from _wait_for_others(until)
    try:
        limits = limits or limits_now(settings)
        end = yield from _end_of_probe(spec, settings, limits, places, until)
        misfit, doubt = _misfit(end, limits), _doubt(end.measured, limits)
        nearest: Changes = {}
        if misfit and _lacks_memory(end, limits):
            nearest = yield from _nearest(spec, probe.smaller, end, settings, limits, places, until)
    finally:
        _one_at_a_time.release()
    return Forecast(
        kind=kind.name,
        title=" ".join([kind.title, *(name for _, name in kind.creates(spec)[:1])]),
        measured=end.measured,
        problem=misfit or end.problem or doubt,
        next_step=START_ANYWAY if doubt and not misfit else _next_step(end, misfit, nearest, limits),
        fits=False if misfit else None if doubt or end.problem or places.elsewhere or not end.measured else True,
        memory_free_bytes=limits.memory_bytes,
        disk_free_bytes=limits.disk_bytes,
        nearest=nearest,
        probe_seconds=time.monotonic() - began,
    )


def several(first: Forecast, num_jobs: int, at_a_time: int, name: str) -> Forecast:
    """The forecast of like jobs, several of them at a time; the speed and the first batch stay those of one."""
    at_a_time = min(num_jobs, at_a_time)
    changes: dict[str, Any] = {"title": f"{num_jobs} trainings for {name}, {at_a_time} at a time"}
    if first.measured is not None:
        single = first.measured
        taken: dict[str, Any] = {
            "num_trained": single.num_trained * num_jobs,
            "artifact_bytes": single.artifact_bytes * num_jobs,
            "num_tokens": single.num_tokens * num_jobs,
            "num_flops": single.num_flops * num_jobs,
            "peak_bytes": single.peak_bytes * at_a_time,
            "checkpoint_bytes": single.checkpoint_bytes * at_a_time,
            "memory": MemoryParts(**{part: value * at_a_time for part, value in single.memory.model_dump().items()}),
            "time": TimeParts(**{part: value * num_jobs for part, value in single.time.model_dump().items()}),
        }
        measured = single.model_copy(update=taken)
        limits = FreeBytes(first.memory_free_bytes, first.disk_free_bytes)
        misfit, doubt = _misfit(End(measured=measured), limits), _doubt(measured, limits)
        if misfit or not measured.not_measured:
            fits = False if misfit else None if doubt else True
            next_step = "" if fits else "Set WORKBENCH_WORKER_SLOTS to 1, or train smaller models."
            changes |= {"problem": misfit or doubt, "fits": fits, "next_step": next_step}
        changes |= {"measured": measured, "nearest": {}}
    return first.model_copy(update=changes)


def _wait_for_others(until: float) -> Iterator[str]:
    while not _one_at_a_time.acquire(timeout=POLL_SECONDS):
        yield WAITING
        if time.monotonic() > until:
            raise BadSpecError(["Another probe is still running."])


def _end_of_probe(
    spec: Spec, settings: Settings, limits: FreeBytes, places: Places, until: float
) -> Generator[str, None, End]:
    """How a probe ended, for the processes of the job and their machines. Only this one's memory can be too little."""
    end = yield from run_probe(spec, settings, limits, until)
    processes = processes_of(spec, settings)
    is_undivided = processes == "dividing" and places.here > 0
    if end.measured is not None:
        measured = place_on_machines(end.measured, places).model_copy(update={"is_undivided": is_undivided})
        return replace(end, measured=measured)
    if end.lacks in ("memory", "least") and places.elsewhere:
        return End(problem=f"{end.problem} Its nodes may have more, but nothing was measured.", next_step=START_ANYWAY)
    if end.lacks in ("memory", "least") and is_undivided:
        return End(problem=f"{end.problem} {_UNDIVIDED}", next_step=START_ANYWAY)
    if end.lacks == "least" and processes != "one":  # the probe, one process, names options that only work in one
        return replace(end, next_step=_SMALLER)
    return end


def _misfit(end: End, limits: FreeBytes) -> str:
    """Why the job does not fit; empty where it does, and where that is not known."""
    if end.lacks:
        return end.problem
    if end.measured is None:
        return ""
    memory = [] if end.measured.is_undivided else _too_little_memory(end.measured, limits)
    return " ".join([*memory, *_too_little("disk", end.measured.disk_bytes, limits.disk_bytes)])


def _doubt(measured: Measured | None, limits: FreeBytes) -> str:
    """Why it is not known whether the job fits: its processes divide what was measured; empty where that fits."""
    lacking = _too_little_memory(measured, limits) if measured and measured.is_undivided else []
    return " ".join([*lacking, _UNDIVIDED]) if lacking else ""


def _too_little_memory(measured: Measured, limits: FreeBytes) -> list[str]:
    """Sentences about the memory of this machine and of its GPU; none where the GPUs are those of other machines."""
    lacking = _too_little("memory", measured.peak_bytes, limits.memory_bytes)
    if measured.num_on_node:
        return lacking
    if _exceeds_share(measured):
        taken, share = map(megabytes, (measured.gpu_peak_bytes, measured.gpu_share_bytes))
        return [*lacking, f"It takes {taken} of the GPU's memory, and its share of that is {share}."]
    return [*lacking, *_too_little("the GPU's memory", measured.gpu_peak_bytes, measured.gpu_free_bytes)]


def _too_little(what: str, taken: int, free: int) -> list[str]:
    return [f"It takes {megabytes(taken)} of {what}, and {megabytes(free)} are free."] if taken > free else []


def _exceeds_share(measured: Measured) -> bool:
    return 0 < measured.gpu_share_bytes < measured.gpu_peak_bytes


def _lacks_memory(end: End, limits: FreeBytes) -> bool:
    if end.measured is None:
        return end.lacks == "memory"
    return not end.measured.is_undivided and bool(_too_little_memory(end.measured, limits))


def _nearest(
    spec: Any, smaller: Sequence[Any], end: End, settings: Settings, limits: FreeBytes, places: Places, until: float
) -> Generator[str, None, Changes]:
    """The options of the first smaller job that fits; empty where none does before the time is over.

    Those that must take more than is free, if only their activations shrink, are not probed. A probe may also fail: not
    every model can checkpoint activations.
    """
    for smaller_spec in smaller:
        if end.measured is not None and _least(end.measured, spec, smaller_spec) > limits.memory_bytes:
            continue
        tried = yield from _end_of_probe(smaller_spec, settings, limits, places, until)
        if tried.measured is None and time.monotonic() > until:
            break
        if tried.measured is not None and not _misfit(tried, limits):
            before, after = asdict(spec.training), asdict(smaller_spec.training)
            return {name: value for name, value in after.items() if value != before[name]}
    return {}


def _least(measured: Measured, spec: Any, smaller: Any) -> float:
    """The memory of a smaller job, if the rest of the memory were activations only: it has a share of them."""
    now, then = spec.training, smaller.training
    keeps_none = then.activation_checkpointing and not now.activation_checkpointing
    tokens_now, tokens_then = (of.sequences_per_domain * of.block_size for of in (now, then))
    share = 0 if keeps_none else tokens_then / tokens_now
    return measured.peak_bytes - measured.memory.rest * (1 - share)


def _next_step(end: End, misfit: str, nearest: Changes, limits: FreeBytes) -> str:
    if not misfit:
        return end.next_step
    if nearest:
        options = ", ".join(name if value is True else f"{name} {value}" for name, value in nearest.items())
        return f"It fits with {options}."
    if end.lacks == "least":
        return end.next_step
    if not _lacks_memory(end, limits):
        return "Free some space, or set WORKBENCH_ARTIFACTS to a folder on a larger disk."
    if end.measured is not None and _exceeds_share(end.measured):
        return "Ask for a larger share of the GPU, or choose a smaller seed model."
    return _SMALLER


_SMALLER = "Choose a smaller seed model, or train on a machine with more memory."
_UNDIVIDED = (
    "That is the whole model in one process: the job's processes hold a part of it each, and what they take was not "
    "measured."
)
