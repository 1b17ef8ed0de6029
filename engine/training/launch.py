"""Training on several processes, as the same iterator of events that training in this one is.

A launcher starts torchrun on this machine or on several. The processes end with this one, whatever happens to it: each
holds a connection that closes then.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

from engine.device import python_environment, require_gpus
from engine.errors import LostNodeError, LostRankError, NextStep, TrainingError
from engine.events import Event, Progress
from engine.training.coordinator import Coordinator
from engine.training.ipc import (
    GO,
    INPUT,
    STOP,
    Launch,
    failure_in,
    from_line,
    has_failure,
    read_failure,
    store_failure,
)
from engine.training.launchers import Launcher, LocalLauncher, Node

_FOLDER = ".processes"
_WAIT_SECONDS = 0.2
_SEE = "See the log, and whether the machine and its network work."
_SSH_FAILED = 255  # the status of ssh itself, not of what it ran
_END_SECONDS = 5.0
_REPORT_SECONDS = 1.0  # for a report that is still on its way when its node has ended


class WorkerTask(Protocol):
    """A task that several processes carry out together; one that is stopped leaves a checkpoint in `folder`."""

    @property
    def folder(self) -> Path: ...

    @property
    def device(self) -> str: ...

    def write(self, path: Path) -> None: ...


def run_workers(
    task: WorkerTask,
    worker: str,
    num_processes: int,
    *,
    launcher: Launcher | None = None,
    threads: int = 0,
    log: Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> Iterator[Event]:
    """The events of a task in processes that each run the module `worker`; `log` gets what they print.

    `variables` are environment variables that only these processes have.
    """
    launcher = launcher or LocalLauncher()
    if task.device not in ("auto", "cpu", "cuda"):
        raise TrainingError(
            f"Training on several processes needs the device auto, cpu or cuda, but it is “{task.device}” instead.",
            NextStep.CHOOSE_DEVICE_OR_ONE_PROCESS,
        )
    if not launcher.address:
        require_gpus(num_processes, task.device)
    nodes = launcher.nodes(num_processes)
    return _events(TorchrunProcesses(task, worker, nodes, launcher, threads, dict(variables or {}), log))


def _events(workers: TorchrunProcesses) -> Iterator[Event]:
    try:
        workers.start()
        yield from workers.events()
    except (GeneratorExit, KeyboardInterrupt):
        workers.stop()
        raise
    finally:
        workers.end()


@dataclass
class TorchrunProcesses:
    """torchrun on each node, its processes, and the connections to them."""

    _task: WorkerTask
    _worker: str
    _nodes: list[Node]
    _launcher: Launcher
    _threads: int
    _variables: dict[str, str]
    _log: Path | None
    started: bool = False
    _programs: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _coordinator: Coordinator = field(init=False)
    _opened: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        self.num_processes = sum(node.num_processes for node in self._nodes)
        # Only of this attempt: what a former one started late on another machine finds nothing.
        self.folder = self._task.folder / f"{_FOLDER}-{secrets.token_hex(8)}"

    def start(self) -> None:
        """Starts torchrun on every node."""
        for left in self._task.folder.glob(f"{_FOLDER}-*"):
            shutil.rmtree(left, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self._task.write(self.folder / INPUT)
        self._coordinator = Coordinator(len(self._nodes), self._launcher.address)
        self._opened.callback(self._coordinator.close)
        Launch(
            worker=self._worker,
            num_processes=[node.num_processes for node in self._nodes],
            address=self._coordinator.address,
            token=self._coordinator.token,
            threads=self._threads,
            device=self._task.device,
            variables=self._variables,
            gpus=[node.gpus for node in self._nodes],
        ).write(self.folder)
        private = self._launcher.private_variables
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(private)}
        environment = {**inherited, **python_environment()}
        with ExitStack() as opened:
            log = opened.enter_context(self._log.open("ab")) if self._log else None
            for command in self._launcher.commands(self._nodes, self.folder):
                self._programs.append(_start(command, environment, log))

    def events(self) -> Iterator[Event]:
        """Yields the first process's events; after each it continues. Raises the error that ended the processes."""
        for line in self._lines():
            if line:
                self.started = True
                yield from_line(line)
                self._coordinator.answer(GO)
            elif not self.started:
                yield Progress(0, self.num_processes, "processes", "starting")
        self._require_good_end()

    def stop(self) -> None:
        """Ends in order: after its step the training leaves a checkpoint. One that has not begun just ends."""
        if not self.started:
            return
        self._coordinator.answer(STOP)
        while not self._is_over() and self._coordinator.lost is None:
            self._received(_WAIT_SECONDS)
        self._require_good_end()

    def end(self) -> None:
        """Leaves no process and no connection behind."""
        self._opened.close()
        for program in self._programs:
            program.terminate()
        until = time.monotonic() + _END_SECONDS
        for program in self._programs:
            with suppress(subprocess.TimeoutExpired):
                program.wait(max(0.0, until - time.monotonic()))
            program.kill()
            program.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _lines(self) -> Iterator[bytes]:
        """Lines as they come, and an empty one when none came for a moment."""
        while self._coordinator.lost is None:
            is_over = self._is_over()
            lines = self._received(0 if is_over else _WAIT_SECONDS)
            yield from lines
            if not lines:
                if is_over:
                    return
                yield b""

    def _received(self, seconds: float) -> list[bytes]:
        """Lines with events; reports of failures are kept in the folder of this attempt."""
        events = []
        for line in self._coordinator.lines(seconds):
            failure = failure_in(line)
            if failure is None:
                events.append(line)
            else:
                store_failure(self.folder, failure)
        return events

    def _is_over(self) -> bool:
        """Whether torchrun has ended on all nodes, or has failed on one."""
        statuses = [program.poll() for program in self._programs]
        return any(statuses) or None not in statuses

    def _require_good_end(self) -> None:
        failed = [number for number, program in enumerate(self._programs) if program.poll()]
        until = time.monotonic() + _REPORT_SECONDS
        while failed and self._coordinator.lost is None and not has_failure(self.folder) and time.monotonic() < until:
            self._received(_WAIT_SECONDS)
        lost = self._coordinator.lost
        if lost is not None:
            raise LostNodeError(f"{self._name(lost)} does not answer any more.", _SEE, node=self._nodes[lost].name)
        if failed and self._launcher.address and not has_failure(self.folder):
            raise self._failed(failed[0])
        if failed:
            raise read_failure(self.folder, self.num_processes)

    def _failed(self, number: int) -> LostRankError:
        """What started torchrun elsewhere has ended, and no process has written an error."""
        status, is_shared = self._programs[number].returncode, len(self._programs) < len(self._nodes)
        what = f"the program that started it ended with status {status}"
        if is_shared and self.started:
            return LostNodeError(f"A node of the training was lost: {what}.", _SEE)
        if not is_shared and (self.started or status == _SSH_FAILED):
            name = self._nodes[number].name
            return LostNodeError(f"{self._name(number)} was lost or not reached: {what}.", _SEE, node=name)
        return LostRankError(f"The training could not be started: {what}.", _SEE)

    def _name(self, number: int) -> str:
        return f"Node {number + 1} of {len(self._nodes)} ({self._nodes[number].name})"


def _start(command: Sequence[str], environment: Mapping[str, str], log: IO[bytes] | None) -> subprocess.Popen[bytes]:
    """A process in a group of its own: Ctrl-C is for the caller, which then stops in order."""
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0)
