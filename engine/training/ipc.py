"""What a training's processes and the one that started them say to each other: JSON, in files and pipes of one folder.

The caller drives, as with any iterator of events: after each event the first process waits for the word to go on, and
all others wait for it. When the caller's end of a pipe closes, because it died, every process ends at once.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn, get_args

from engine import errors
from engine.config import TrainingConfig
from engine.errors import LostRank, Problem
from engine.events import Event
from engine.training.data import PackedDomain
from engine.training.recipe import Recipe

INPUT, EVENTS, COMMANDS, LIFELINE, STORE, FAILURE = "input.json", "news", "orders", "life", "store", "failure.json"
GO, STOP = b"g", b"s"
_EVENTS: dict[str, Callable[..., Event]] = {cls.__name__: cls for cls in get_args(Event)}
_LOG = "What it printed before stands in the log."
_SMALLER = "If the memory was not enough, choose fewer processes, a smaller block_size or fewer sequences_per_domain."


@dataclass(frozen=True)
class Task:
    """All that a process needs to know: where things lie, what to train and how."""

    seed_folder: Path
    domains: tuple[PackedDomain, ...]
    config: TrainingConfig
    folder: Path  # of the checkpoints
    device: str = "auto"
    recipe: Recipe = field(default_factory=Recipe)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), default=str, indent=1), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Task:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        domains = tuple(PackedDomain(one["name"], one["expert"], Path(one["folder"])) for one in data["domains"])
        config = TrainingConfig(**data["config"])
        recipe = Recipe.from_json(data["recipe"])
        return cls(Path(data["seed_folder"]), domains, config, Path(data["folder"]), data["device"], recipe)


def to_line(event: Event) -> bytes:
    """An event as one line of JSON."""
    return json.dumps({"event": type(event).__name__, **asdict(event)}).encode() + b"\n"


def from_line(line: bytes) -> Event:
    """The event of such a line."""
    data = json.loads(line)
    return _EVENTS[data.pop("event")](**data)


class ParentPipe:
    """The caller as the first process sees it."""

    def __init__(self, folder: Path) -> None:
        self._news = os.open(folder / EVENTS, os.O_WRONLY)
        self._orders = os.open(folder / COMMANDS, os.O_RDONLY)

    def publish(self, event: Event) -> bool:
        """Tells the event and waits; whether to go on."""
        os.write(self._news, to_line(event))
        return os.read(self._orders, 1) == GO


def exit_with_parent(folder: Path) -> None:
    """From now on this process ends when the caller's does."""
    life = os.open(folder / LIFELINE, os.O_RDONLY | os.O_NONBLOCK)  # a plain open would wait for a caller that died
    os.set_blocking(life, True)

    def end() -> NoReturn:
        os.read(life, 1)
        os._exit(1)

    threading.Thread(target=end, name="life", daemon=True).start()


def write_error(folder: Path, rank: int, error: BaseException) -> None:
    """Writes down what a process ends of."""
    record = {
        "kind": type(error).__name__,
        "problem": error.problem if isinstance(error, Problem) else _last_line(error),
        "next_step": error.next_step if isinstance(error, Problem) else "",
        "errno": error.errno if isinstance(error, OSError) else None,
    }
    aside = folder / f"words-{rank}.new"
    aside.write_text(json.dumps(record), encoding="utf-8")
    aside.rename(folder / f"words-{rank}.json")


def write_failure(folder: Path, rank: int, exit_code: int, cause: str) -> None:
    """Writes down which process failed first, as torchrun saw it."""
    record = {"rank": rank, "exit_code": exit_code, "cause": cause}
    (folder / FAILURE).write_text(json.dumps(record), encoding="utf-8")


def read_failure(folder: Path, num_ranks: int) -> Exception:
    """What the processes ended of: a Problem as it was raised, an OSError, or a LostRank that names the process."""
    for rank in range(num_ranks):
        words = folder / f"words-{rank}.json"
        if words.exists():
            return _error_of(f"Process {rank} of {num_ranks}", rank, json.loads(words.read_text(encoding="utf-8")))
    if not (folder / FAILURE).exists():
        return LostRank(f"torchrun must run the {num_ranks} processes of the training, but ended itself.", _LOG)
    record = json.loads((folder / FAILURE).read_text(encoding="utf-8"))
    name = f"Process {record['rank']} of {num_ranks}"
    return LostRank(f"{name} ended without a word: {record['cause']}.", f"{_LOG} {_SMALLER}", rank=record["rank"])


def _error_of(name: str, rank: int, record: dict[str, Any]) -> Exception:
    kind = getattr(errors, record["kind"], None)
    if isinstance(kind, type) and issubclass(kind, Problem):
        return kind(record["problem"], record["next_step"])
    if record["errno"] is not None:
        return OSError(record["errno"], record["problem"])
    what = f"{name} ended in an error of its own: {record['kind']}: {record['problem']}"
    return LostRank(what, f"{_LOG} {_SMALLER}" if "memory" in what.lower() else _LOG, rank=rank)


def _last_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or ["no message"])[-1][:500]
