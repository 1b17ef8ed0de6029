"""What every process of a distributed training does: join the others, drive the training, end with its parent."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from engine.device import prepare_process
from engine.errors import LostRankError

if TYPE_CHECKING:
    import torch

    from engine.events import Event
    from engine.training.distributed import ProcessGroup
    from engine.training.ipc import ParentConnection

_END_SECONDS = 60.0  # torchrun needs a moment to see who failed, and then ends all


def main(place: Path, work: Callable[[Path, int, int, ParentConnection | None], None]) -> NoReturn:
    """Does the work of (place, rank, number of ranks, parent) and ends: nothing that a library left keeps it alive."""
    prepare_process()
    from engine.training.ipc import Launch, ParentConnection, report_error

    rank, line = int(os.environ["RANK"]), place.is_dir()
    parent = None
    try:
        parent = ParentConnection(Launch.read(place)) if line else None
        if parent is not None:
            parent.introduce("rank", rank)
        work(place, rank, int(os.environ["WORLD_SIZE"]), parent)
    except BaseException as error:
        traceback.print_exc()
        if isinstance(error, LostRankError):
            time.sleep(_END_SECONDS)  # the word is with the one that failed
        elif line:
            report_error(place, rank, error, parent)
        _exit(1)
    _exit(0)


def drive(events: Iterator[Event], team: ProcessGroup, parent: ParentConnection | None) -> None:
    """Goes on while the parent wants more; what it wants is asked by the first process and done by all."""
    from engine.training.ipc import to_line

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

    from engine.device import choose_device

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
