"""The forecast of a job: runs its probe in a process of its own, and compares what it takes with what is free."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import psutil

from engine.device import left_in_container, process_environment, python_command, python_environment
from engine.files import folder_size
from jobs.probe.processes import Places, place_on_machines, places_of, processes_of, with_processes
from workbench.answers.forecasts import Forecast, Measured, MemoryParts, TimeParts
from workbench.errors import BadSpecError
from workbench.formatting.number_format import pluralize
from workbench.job_records.devices import list_devices
from workbench.job_records.preconditions import kind_of, settled, validate_against_registry
from workbench.registry import database
from workbench.settings import Settings, get_settings
from workbench.specs.base import Spec
from workbench.store.storage import free_bytes


@dataclass(frozen=True)
class FreeBytes:
    """Bytes that are free."""

    memory_bytes: int
    disk_bytes: int


def limits_now(settings: Settings) -> FreeBytes:
    """Memory that is available, in a container what its limit leaves, and the disk of artifacts or of checkpoints."""
    memory = int(psutil.virtual_memory().available)
    with suppress(OSError, ValueError):
        memory = min(memory, left_in_container())
    return FreeBytes(max(memory, 0), min(map(free_bytes, (settings.artifacts_folder, settings.root))))


MOST_SECONDS = 120.0  # of all probes of one forecast, without those in which one says that it has come further
_LONGEST = 900.0  # seconds that a probe may go on coming further
POLL_SECONDS = 0.1  # between two looks at the memory of a probe
PROBE = python_command("jobs.probe.child")
WAITING = "waiting for another probe"

_one_at_a_time = Lock()  # two would slow each other down


Changes = dict[str, int | bool]  # options of a training and their new values


@dataclass(frozen=True)
class End:
    """How a probe ended: with what it measured, or with a problem."""

    measured: Measured | None = None
    problem: str = ""
    next_step: str = ""
    # what ran out, for which it was ended; or the least memory that it takes, only by its shapes, before it began
    lacks: Literal["", "memory", "disk", "least"] = ""


def forecast(
    spec: Spec, settings: Settings | None = None, *, limits: FreeBytes | None = None, max_seconds: float = MOST_SECONDS
) -> Generator[str, None, Forecast]:
    """Yields what the probe is at, in words, ten times a second, and returns the forecast. Closing it stops the probe.

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
        next_step=_START_ANYWAY if doubt and not misfit else _next_step(end, misfit, nearest, limits),
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
        return End(problem=f"{end.problem} Its nodes may have more, but nothing was measured.", next_step=_START_ANYWAY)
    if end.lacks in ("memory", "least") and is_undivided:
        return End(problem=f"{end.problem} {_UNDIVIDED}", next_step=_START_ANYWAY)
    if end.lacks == "least" and processes != "one":  # the probe, one process, names options that only work in one
        return replace(end, next_step=_SMALLER)
    return end


def run_probe(spec: Spec, settings: Settings, limits: FreeBytes, until: float) -> Generator[str, None, End]:
    """Runs one probe until its end, or until it takes more than there is.

    One that comes further, as a large model does slowly, has as much time again from there on.
    """
    began = time.monotonic()
    patience = until - began
    with folder_for_a_probe(settings) as folder, _process(spec, folder, settings) as process:
        lines = _Lines(process)
        while (end := lines.end()) is None:
            if lacks := _runs_out(process, folder, limits):
                free = limits.memory_bytes if lacks == "memory" else limits.disk_bytes
                return End(problem=f"It takes more {lacks} than the {_megabytes(free)} that are free.", lacks=lacks)
            if lines.has_moved() and patience > 0:
                until = max(until, min(time.monotonic() + patience, began + _LONGEST))
            if time.monotonic() > until:
                return lines.end_early()
            yield lines.progress
            time.sleep(POLL_SECONDS)
        return end


class _Lines:
    """The lines that a probe prints."""

    so_far: Measured | None = None  # after its last update

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None, "it is a pipe"
        self._process, self._pipe, self._rest = process, process.stdout, b""
        self.stage = self._seen = "starting"
        os.set_blocking(self._pipe.fileno(), False)

    def has_moved(self) -> bool:
        """Whether the stage is another than at the last call."""
        has_moved, self._seen = self.stage != self._seen, self.stage
        return has_moved

    def end(self) -> End | None:
        """How the probe ended; None while it runs."""
        code = self._process.poll()
        *lines, self._rest = (self._rest + (self._pipe.read() or b"")).split(b"\n")
        for line in lines:
            content = json.loads(line)
            if "measured" in content:
                return End(measured=Measured(**content["measured"]))
            if "problem" in content:
                return End(**content)
            if "so_far" in content:
                self.so_far = Measured(**content["so_far"])
            else:
                self.stage = content["stage"]
        if code is None:
            return None
        if code == -9:  # nobody else kills it
            return End(problem="The probe was ended by the machine: its memory ran out.", lacks="memory")
        return End(problem=f"The probe ended with code {code}.", next_step=_START_ANYWAY)

    def end_early(self) -> End:
        """The end of a probe whose time is over: with what it has measured, if it came to an update."""
        if self.so_far is None:
            return End(problem=_LATE.format(self.stage), next_step=_START_ANYWAY)
        update = self.so_far.update
        known = pluralize(update.num_measured if update else 0, "update")
        missing = " and ".join(self.so_far.not_measured)
        return End(measured=self.so_far, problem=_LATE_PART.format(self.stage, known, missing), next_step=_START_ANYWAY)

    @property
    def progress(self) -> str:
        """The stage, and how long the job takes by what is known."""
        known = self.so_far
        return self.stage if known is None else f"{self.stage} · the job takes {known.seconds:,.0f} s or more"


@contextmanager
def folder_for_a_probe(settings: Settings) -> Iterator[Path]:
    """A temporary folder on the disk that the job would write to."""
    folder = probes_folder(settings) / uuid.uuid4().hex
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def probes_folder(settings: Settings) -> Path:
    """The folder of the temporary folders of probes."""
    return settings.root / "probes"


@contextmanager
def _process(spec: Spec, folder: Path, settings: Settings) -> Iterator[subprocess.Popen[bytes]]:
    """The process of a probe; it is killed at the end, and ends itself when this one does."""
    home = {  # the settings of this process that decide what a probe reads
        "WORKBENCH_HOME": str(settings.root),
        "WORKBENCH_DATABASE_URL": settings.database,
        "WORKBENCH_ARTIFACTS": str(settings.artifacts_folder),
        "WORKBENCH_STORE": settings.store,
    }
    process = subprocess.Popen(
        [*PROBE, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, **_threads(spec, settings), **python_environment(), **home},
    )
    try:
        assert process.stdin is not None, "it is a pipe"
        process.stdin.write(spec.model_dump_json().encode() + b"\n")
        process.stdin.flush()
        yield process
    finally:
        process.kill()
        process.communicate()


def _threads(spec: Spec, settings: Settings) -> dict[str, str]:
    """As the job's process has them: of several processes each has a share of the cores."""
    make_probe = kind_of(spec).probe
    num_processes = make_probe(spec).num_processes if make_probe else 1
    if num_processes > 1:
        return process_environment(settings.threads or max(1, (os.cpu_count() or 1) // num_processes))
    return {name: os.environ.get(name, value) for name, value in process_environment(settings.threads).items()}


def _runs_out(process: subprocess.Popen[bytes], folder: Path, limits: FreeBytes) -> Literal["", "memory", "disk"]:
    """The resource that a probe exhausts, so that it must end."""
    with suppress(psutil.Error, FileNotFoundError):  # it has just ended, or a file has just gone
        if psutil.Process(process.pid).memory_info().rss > limits.memory_bytes:
            return "memory"
        if folder_size(folder) > limits.disk_bytes:
            return "disk"
    return ""


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
        taken, share = map(_megabytes, (measured.gpu_peak_bytes, measured.gpu_share_bytes))
        return [*lacking, f"It takes {taken} of the GPU's memory, and its share of that is {share}."]
    return [*lacking, *_too_little("the GPU's memory", measured.gpu_peak_bytes, measured.gpu_free_bytes)]


def _too_little(what: str, taken: int, free: int) -> list[str]:
    return [f"It takes {_megabytes(taken)} of {what}, and {_megabytes(free)} are free."] if taken > free else []


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


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.0f} MB"


_LATE = "The probe took too long and was ended while it was at “{}”; its job may still fit."
_LATE_PART = "The probe was ended while it was at “{}”. Time and memory are of {}; not measured: {}."
_SMALLER = "Choose a smaller seed model, or train on a machine with more memory."
_UNDIVIDED = (
    "That is the whole model in one process: the job's processes hold a part of it each, and what they take was not "
    "measured."
)
_START_ANYWAY = "Start the job without a forecast, or try again when the machine is less busy."
