"""Training on several processes of this machine, as the same iterator of events that training in this one is.

torchrun starts the processes. They end with this one, whatever happens to it: each holds a pipe that closes then.
"""

from __future__ import annotations

import os
import select
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Protocol

from engine.device import process_environment
from engine.errors import NextStep, TrainingError
from engine.events import Event, Progress
from engine.subprocesses import python_command, python_environment
from engine.training.ipc import COMMANDS, EVENTS, GO, INPUT, LIFELINE, STOP, from_line, read_failure

_LOOK_SECONDS = 0.2
_END_SECONDS = 5.0


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
    threads: int = 0,
    log: Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> Iterator[Event]:
    """The events of a task in processes that each run the module `worker`; `log` gets what they print.

    `variables` are environment variables that only these processes have.
    """
    _require_devices(task.device, num_processes)
    environment = {**_environment(num_processes, threads), **(variables or {})}
    return _events(task, worker, num_processes, environment, log)


def num_gpus(device: str = "auto") -> int:
    """GPUs that a device of this name stands for: all, none, or the one that it names."""
    import torch

    if device in ("auto", "cuda"):
        return torch.cuda.device_count()
    return int(device.startswith("cuda"))


def _require_devices(device: str, num_processes: int) -> None:
    gpus = num_gpus(device)
    if device not in ("auto", "cpu", "cuda"):
        raise TrainingError(
            f"Training on several processes needs the device auto, cpu or cuda, but it is “{device}” instead.",
            NextStep.CHOOSE_DEVICE_OR_ONE_PROCESS,
        )
    if num_processes > gpus and (gpus or device == "cuda"):
        raise TrainingError(
            f"Each process must have a GPU of its own, but there are {num_processes} processes and {gpus} GPUs.",
            f"Choose at most {gpus} processes, or the device cpu.",
        )


def _environment(num_processes: int, threads: int) -> dict[str, str]:
    """For torchrun and its processes: cores shared out, and no word to any other machine."""
    loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")
    return {
        **os.environ,
        **python_environment(),
        **process_environment(threads or max(1, (os.cpu_count() or 1) // num_processes)),
        "GLOO_SOCKET_IFNAME": loopback,
        "NCCL_SOCKET_IFNAME": loopback,
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # torchrun would listen on all addresses
    }


def _events(
    task: WorkerTask, worker: str, num_processes: int, environment: dict[str, str], log: Path | None
) -> Iterator[Event]:
    workers = TorchrunProcesses(task, worker, num_processes, environment, log)
    try:
        yield from workers.events()
    except (GeneratorExit, KeyboardInterrupt):
        workers.stop()
        raise
    finally:
        workers.end()


class TorchrunProcesses:
    """torchrun, its processes, and the pipes to them."""

    def __init__(
        self, task: WorkerTask, worker: str, num_processes: int, environment: dict[str, str], log: Path | None
    ) -> None:
        self.num_processes, self.folder = num_processes, task.folder / ".processes"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        task.write(self.folder / INPUT)
        for name in (EVENTS, COMMANDS, LIFELINE):
            os.mkfifo(self.folder / name, 0o600)
        self.started = False
        with ExitStack() as pipes:  # closed again if torchrun cannot start
            self.event_pipe, self.command_pipe, self.lifeline_pipe = (
                self._open(name, pipes) for name in (EVENTS, COMMANDS, LIFELINE)
            )
            self.torchrun = self._start(worker, environment, log)
            pipes.pop_all()

    def _open(self, name: str, pipes: ExitStack) -> int:
        pipe = os.open(self.folder / name, os.O_RDWR)  # for both, so that no open waits for the other end
        pipes.callback(os.close, pipe)
        return pipe

    def _start(self, worker: str, environment: dict[str, str], log: Path | None) -> subprocess.Popen[bytes]:
        command = python_command("engine.training.elastic_launcher", str(self.folder), str(self.num_processes), worker)
        with open(log or os.devnull, "ab") as file:
            out = file if log else None
            # A group of its own: Ctrl-C is for the caller, which then stops in order.
            return subprocess.Popen(command, env=environment, stdout=out, stderr=out, process_group=0)

    def events(self) -> Iterator[Event]:
        """Yields the first process's events; after each it continues. Raises the error that ended the processes."""
        for line in self._lines():
            if line:
                self.started = True
                yield from_line(line)
                os.write(self.command_pipe, GO)
            elif not self.started:
                yield Progress(0, self.num_processes, "processes", "starting")
        self._require_good_end()

    def stop(self) -> None:
        """Ends in order: after its step the training leaves a checkpoint. One that has not begun just ends."""
        if not self.started:
            return
        os.write(self.command_pipe, STOP)
        self.torchrun.wait()
        self._require_good_end()

    def end(self) -> None:
        """Leaves no process and no pipe behind."""
        os.close(self.lifeline_pipe)
        self.torchrun.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.torchrun.wait(_END_SECONDS)
        self.torchrun.kill()
        self.torchrun.wait()
        os.close(self.event_pipe)
        os.close(self.command_pipe)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _lines(self) -> Iterator[bytes]:
        """Lines as they come, and an empty one when none came for a moment."""
        buffer = b""
        while True:
            over = self.torchrun.poll() is not None
            if select.select([self.event_pipe], [], [], 0 if over else _LOOK_SECONDS)[0]:
                *lines, buffer = (buffer + os.read(self.event_pipe, 1 << 16)).split(b"\n")
                yield from lines
            elif over:
                return
            else:
                yield b""

    def _require_good_end(self) -> None:
        if self.torchrun.returncode:
            raise read_failure(self.folder, self.num_processes)
