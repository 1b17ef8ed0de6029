"""Runs one probe in a process of its own until its end, or until it takes more than there is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from engine.device import megabytes, process_environment, python_command, python_environment
from engine.files import folder_size
from workbench.answers.forecasts import Measured
from workbench.formatting.number_format import pluralize
from workbench.job_records.preconditions import kind_of
from workbench.settings import Settings
from workbench.specs.base import Spec

_LONGEST = 900.0  # seconds that a probe may go on coming further
POLL_SECONDS = 0.1  # between two looks at the memory of a probe
PROBE = python_command("jobs.probe.child")
START_ANYWAY = "Start the job without a forecast, or try again when the machine is less busy."
_LATE = "The probe took too long and was ended while it was at “{}”; its job may still fit."
_LATE_PART = "The probe was ended while it was at “{}”. Time and memory are of {}; not measured: {}."


@dataclass(frozen=True)
class FreeBytes:
    """Bytes that are free."""

    memory_bytes: int
    disk_bytes: int


@dataclass(frozen=True)
class End:
    """How a probe ended: with what it measured, or with a problem."""

    measured: Measured | None = None
    problem: str = ""
    next_step: str = ""
    # what ran out, for which it was ended; or the least memory that it takes, only by its shapes, before it began
    lacks: Literal["", "memory", "disk", "least"] = ""


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
                return End(problem=f"It takes more {lacks} than the {megabytes(free)} that are free.", lacks=lacks)
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
        return End(problem=f"The probe ended with code {code}.", next_step=START_ANYWAY)

    def end_early(self) -> End:
        """The end of a probe whose time is over: with what it has measured, if it came to an update."""
        if self.so_far is None:
            return End(problem=_LATE.format(self.stage), next_step=START_ANYWAY)
        update = self.so_far.update
        known = pluralize(update.num_measured if update else 0, "update")
        missing = " and ".join(self.so_far.not_measured)
        return End(measured=self.so_far, problem=_LATE_PART.format(self.stage, known, missing), next_step=START_ANYWAY)

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
