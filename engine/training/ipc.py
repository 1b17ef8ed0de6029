"""Communication between a training's processes and their parent: JSON in files of one folder, and over a connection.

The parent drives, as with any iterator of events: after each event the first process waits for the command to
continue, and all others wait for it. When the parent dies, its connections close and every process ends at once.
Each process joins the others, drives the training, and ends with its parent (`main`, `process_group`, `drive`).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, NoReturn, get_args

from engine import errors
from engine.device import choose_device, prepare_process
from engine.errors import LostRankError, NextStep, Problem, TrainingError, is_out_of_memory
from engine.events import Event
from engine.files import new_file
from engine.training.coordinator import keep_alive

if TYPE_CHECKING:
    import torch

    from engine.training.distributed import ProcessGroup

INPUT, LAUNCH, FAILURE, STORE = "input.json", "launch.json", "failure.json", "store"
GO, STOP = b"g", b"s"
_CONNECT_SECONDS = 60.0
_EVENTS: dict[str, Callable[..., Event]] = {cls.__name__: cls for cls in get_args(Event)}
_LOG = "See its output in the log."
_SMALLER = "If the memory was not enough, choose fewer processes, a smaller block_size or fewer sequences_per_domain."


def to_line(event: Event) -> bytes:
    """An event as one line of JSON."""
    return json.dumps({"event": type(event).__name__, **asdict(event)}).encode() + b"\n"


def from_line(line: bytes) -> Event:
    """The event of a line written by `to_line`."""
    data = json.loads(line)
    return _EVENTS[data.pop("event")](**data)


@dataclass(frozen=True)
class Launch:
    """What torchrun on each node must know in addition to the task."""

    worker: str  # module
    num_processes: list[int]  # of each node
    address: str  # of the coordinator: a path, or host:port
    token: str
    threads: int  # of each process; 0: a node's cores are shared out
    device: str
    variables: dict[str, str]  # environment of the processes
    gpus: list[str]  # each node's CUDA_VISIBLE_DEVICES; empty: all of its GPUs

    def write(self, folder: Path) -> None:
        """Writes it so that only this user reads the token."""
        with open(os.open(folder / LAUNCH, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
            json.dump(asdict(self), file)

    @classmethod
    def read(cls, folder: Path) -> Launch:
        """What was written for the processes of this folder."""
        return cls(**json.loads((folder / LAUNCH).read_text(encoding="utf-8")))


class ParentConnection:
    """A process's connection to the parent of the training; `on_end` is called when that ends, in a thread."""

    def __init__(self, launch: Launch, on_end: Callable[[], object] = lambda: os._exit(1)) -> None:
        self._token, self._on_end = launch.token, on_end
        if launch.address.startswith("/"):
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.connect(launch.address)
        else:
            host, port = launch.address.rsplit(":", 1)
            try:
                self._socket = socket.create_connection((host, int(port)), _CONNECT_SECONDS)
            except OSError as error:
                raise TrainingError(
                    f"{socket.gethostname()} does not reach the worker at {launch.address}: {error.strerror or error}.",
                    NextStep.REACHABLE_ADDRESS,
                ) from None
            self._socket.settimeout(None)
        keep_alive(self._socket)
        self._answers: SimpleQueue[bytes] = SimpleQueue()

    @property
    def own_address(self) -> str:
        """The address of this machine from which the parent is reached; only where it listens on one."""
        return str(self._socket.getsockname()[0])

    def introduce(self, role: str, number: int, endpoint: str = "") -> None:
        """Names this process, its machine and version of torch, and where it listens."""
        hello = {
            "token": self._token,
            "role": role,
            "number": number,
            "endpoint": endpoint,
            "host": socket.gethostname(),
            "torch": version("torch"),
        }
        self._socket.sendall(json.dumps(hello).encode() + b"\n")
        Thread(target=self._receive, name="parent", daemon=True).start()

    def publish(self, event: Event) -> bool:
        """Sends the event and waits; True to continue."""
        self._socket.sendall(to_line(event))
        return self.answer() == GO

    def send_failure(self, record: dict[str, Any]) -> bool:
        """Sends why this process or another one failed; False if the connection is lost."""
        try:
            self._socket.sendall(json.dumps(record).encode() + b"\n")
        except OSError:
            return False
        return True

    def answer(self) -> bytes:
        """Waits for the parent's next word."""
        return self._answers.get()

    def _receive(self) -> None:
        with suppress(OSError), self._socket.makefile("rb") as lines:
            for line in lines:
                self._answers.put(line.rstrip(b"\n"))
        self._on_end()


def report_error(folder: Path, rank: int, error: BaseException, parent: ParentConnection | None = None) -> None:
    """Reports the error that ended a process."""
    lines = str(error).strip().splitlines() or ["no message"]
    record = {
        "rank": rank,
        "kind": type(error).__name__,
        "problem": error.problem if isinstance(error, Problem) else lines[-1][:500],
        "next_step": error.next_step if isinstance(error, Problem) else "",
        "errno": error.errno if isinstance(error, OSError) else None,
        "lacks_memory": isinstance(error, Exception) and is_out_of_memory(error),
    }
    _report(folder, record, parent)


def report_failure(folder: Path, rank: int, exit_code: int, cause: str, parent: ParentConnection | None = None) -> None:
    """Reports which process failed first, as torchrun says."""
    _report(folder, {"rank": rank, "exit_code": exit_code, "cause": cause}, parent)


def _report(folder: Path, record: dict[str, Any], parent: ParentConnection | None) -> None:
    """Sends it to the parent; without a connection it is written, and seen late where another machine has the disk."""
    if parent is None or not parent.send_failure(record):
        store_failure(folder, record)


def store_failure(folder: Path, record: dict[str, Any]) -> None:
    """Writes a report; of several nodes the first one says which process failed first."""
    file = folder / (FAILURE if "exit_code" in record else f"error-{int(record['rank'])}.json")
    if not file.exists():
        with new_file(file) as new:
            new.write_text(json.dumps(record), encoding="utf-8")


def failure_in(line: bytes) -> dict[str, Any] | None:
    """The report in a line; None in one with an event."""
    record: dict[str, Any] = json.loads(line)
    return None if "event" in record else record


def has_failure(folder: Path) -> bool:
    """Whether a process or torchrun has reported why it failed."""
    return (folder / FAILURE).exists() or any(folder.glob("error-*.json"))


def read_failure(folder: Path, num_ranks: int) -> Exception:
    """The error that ended the processes: a Problem as it was raised, an OSError, or a LostRankError with the rank."""
    for rank in range(num_ranks):
        file = folder / f"error-{rank}.json"
        if file.exists():
            return _error_of(f"Process {rank} of {num_ranks}", rank, json.loads(file.read_text(encoding="utf-8")))
    if not (folder / FAILURE).exists():
        return LostRankError(f"torchrun ended before the {num_ranks} processes of the training did.", _LOG)
    record = json.loads((folder / FAILURE).read_text(encoding="utf-8"))
    name = f"Process {record['rank']} of {num_ranks}"
    return LostRankError(
        f"{name} ended without an error message: {record['cause']}.",
        f"{_LOG} {_SMALLER}",
        rank=record["rank"],
        lacks_memory=record["exit_code"] == -signal.SIGKILL,
    )


def _error_of(name: str, rank: int, record: dict[str, Any]) -> Exception:
    kind = getattr(errors, record["kind"], None)
    if isinstance(kind, type) and issubclass(kind, Problem):
        return kind(record["problem"], record["next_step"])
    if record["errno"] is not None:
        return OSError(record["errno"], record["problem"])
    what = f"{name} raised an unexpected error: {record['kind']}: {record['problem']}"
    lacks_memory = bool(record.get("lacks_memory"))
    return LostRankError(what, f"{_LOG} {_SMALLER}" if lacks_memory else _LOG, rank=rank, lacks_memory=lacks_memory)


_END_SECONDS = 60.0  # torchrun needs a moment to see who failed, and then ends all


def main(folder: Path, work: Callable[[Path, int, int, ParentConnection | None], None]) -> NoReturn:
    """Does the work of (folder, rank, number of ranks, parent) and ends: nothing that a library left keeps it alive."""
    prepare_process()
    rank, line = int(os.environ["RANK"]), folder.is_dir()
    parent = None
    try:
        parent = ParentConnection(Launch.read(folder)) if line else None
        if parent is not None:
            parent.introduce("rank", rank)
        work(folder, rank, int(os.environ["WORLD_SIZE"]), parent)
    except BaseException as error:
        traceback.print_exc()
        if isinstance(error, LostRankError):
            time.sleep(_END_SECONDS)  # the word is with the one that failed
        elif line:
            report_error(folder, rank, error, parent)
        _exit(1)
    _exit(0)


def drive(events: Iterator[Event], team: ProcessGroup, parent: ParentConnection | None) -> None:
    """Goes on while the parent wants more; what it wants is asked by the first process and done by all."""
    for event in events:
        wanted = True
        if parent and team.rank == 0:
            wanted = parent.publish(event)
        elif team.rank == 0:
            print(to_line(event).decode(), end="", flush=True)
        if not team.broadcast(wanted):
            break
    events.close()  # type: ignore[attr-defined]


def own_device(device: str) -> torch.device:
    """The CPU, or the GPU with this process's number on its machine."""
    import torch

    on_cpu = device == "cpu" or not torch.cuda.is_available()
    own = choose_device("cpu" if on_cpu else f"cuda:{os.environ['LOCAL_RANK']}")
    if own.type == "cuda":
        torch.cuda.set_device(own)
    return own


@contextmanager
def process_group(device: torch.device, rank: int, num_ranks: int, store: Path | None) -> Iterator[None]:
    """Meets the others through a file, or, on several nodes or by hand, as torchrun's variables say."""
    import torch.distributed as dist

    backend, is_single_node = "nccl" if device.type == "cuda" else "gloo", os.environ["GROUP_WORLD_SIZE"] == "1"
    meeting = dist.FileStore(str(store), num_ranks) if store and is_single_node else None  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=meeting, rank=rank, world_size=num_ranks)
    yield
    dist.destroy_process_group()


def _exit(code: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
