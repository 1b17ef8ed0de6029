"""Communication between a training's processes and their parent: JSON in files and pipes of one folder.

The parent drives, as with any iterator of events: after each event the first process waits for the command to
continue, and all others wait for it. When the parent dies, its end of a pipe closes and every process ends at once.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn, get_args

from engine import errors
from engine.errors import LostRank, Problem
from engine.events import Event
from engine.files import new_file

INPUT, FAILURE, STORE = "input.json", "failure.json", "store"
EVENTS, COMMANDS, LIFELINE = "events", "commands", "lifeline"  # named pipes
GO, STOP = b"g", b"s"
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


class ParentPipe:
    """The pipes of the first process to its parent."""

    def __init__(self, folder: Path) -> None:
        self._events = os.open(folder / EVENTS, os.O_WRONLY)
        self._commands = os.open(folder / COMMANDS, os.O_RDONLY)

    def publish(self, event: Event) -> bool:
        """Sends the event and waits; True to continue."""
        os.write(self._events, to_line(event))
        return os.read(self._commands, 1) == GO


def exit_with_parent(folder: Path) -> None:
    """Ends this process when its parent ends."""
    # A blocking open would wait for a parent that died.
    lifeline = os.open(folder / LIFELINE, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(lifeline, True)

    def end() -> NoReturn:
        os.read(lifeline, 1)
        os._exit(1)

    threading.Thread(target=end, name="lifeline", daemon=True).start()


def write_error(folder: Path, rank: int, error: BaseException) -> None:
    """Writes the error that ended a process."""
    record = {
        "kind": type(error).__name__,
        "problem": error.problem if isinstance(error, Problem) else _last_line(error),
        "next_step": error.next_step if isinstance(error, Problem) else "",
        "errno": error.errno if isinstance(error, OSError) else None,
    }
    with new_file(folder / f"error-{rank}.json") as file:
        file.write_text(json.dumps(record), encoding="utf-8")


def write_failure(folder: Path, rank: int, exit_code: int, cause: str) -> None:
    """Writes which process failed first, as reported by torchrun."""
    record = {"rank": rank, "exit_code": exit_code, "cause": cause}
    (folder / FAILURE).write_text(json.dumps(record), encoding="utf-8")


def read_failure(folder: Path, num_ranks: int) -> Exception:
    """The error that ended the processes: a Problem as it was raised, an OSError, or a LostRank with the process."""
    for rank in range(num_ranks):
        file = folder / f"error-{rank}.json"
        if file.exists():
            return _error_of(f"Process {rank} of {num_ranks}", rank, json.loads(file.read_text(encoding="utf-8")))
    if not (folder / FAILURE).exists():
        return LostRank(f"torchrun ended before the {num_ranks} processes of the training did.", _LOG)
    record = json.loads((folder / FAILURE).read_text(encoding="utf-8"))
    name = f"Process {record['rank']} of {num_ranks}"
    return LostRank(
        f"{name} ended without an error message: {record['cause']}.", f"{_LOG} {_SMALLER}", rank=record["rank"]
    )


def _error_of(name: str, rank: int, record: dict[str, Any]) -> Exception:
    kind = getattr(errors, record["kind"], None)
    if isinstance(kind, type) and issubclass(kind, Problem):
        return kind(record["problem"], record["next_step"])
    if record["errno"] is not None:
        return OSError(record["errno"], record["problem"])
    what = f"{name} raised an unexpected error: {record['kind']}: {record['problem']}"
    return LostRank(what, f"{_LOG} {_SMALLER}" if "memory" in what.lower() else _LOG, rank=rank)


def _last_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or ["no message"])[-1][:500]
