"""A kind of job that counts: quick, with checkpoints, and able to misbehave. It reads the spec of an evaluation.

`mixture` says how to behave, `max_tokens` how many steps, `block_size` how many milliseconds each takes.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from engine.errors import EngineError
from engine.events import Evaluated, Event, Progress, Saved, Step
from jobs.attempt import attempt
from jobs.attempt.work import Register, Work
from workbench.kinds.analysis import EVALUATE, Evaluate
from workbench.kinds.kind import Kind
from workbench.schema.tables import Corpus
from workbench.settings import Settings

SAVE_EVERY = 10


def tiny_evaluate() -> Kind[Evaluate]:
    """The kind `evaluate`, run by this module."""
    return replace(EVALUATE, runner="tiny_kind:run")


def job_spec(how: str = "count", steps: int = 100, milliseconds: int = 8) -> Evaluate:
    """A spec that makes a job of this kind."""
    return Evaluate(mixture=how, max_tokens=steps, block_size=milliseconds)


def made_by(job_id: str) -> str:
    """The unique name of the row that a job's effective run makes."""
    return f"made by {job_id}"


def released(settings: Settings) -> Path:
    """The file that jobs which are “held” wait for before they count."""
    return settings.root / "released"


def run(work: Work, spec: Evaluate) -> Generator[Event, None, Register]:
    """Counts to the number of steps."""
    with (work.folder.parent / "starts.txt").open("a") as file:
        file.write(f"{work.attempt}\n")
    yield Progress(0, None, "documents", "reading")
    while spec.mixture == "held" and not released(work.settings).exists():
        time.sleep(0.02)
    _misbehave(spec.mixture)
    with _locked_gpus(work):
        step = yield from _count(work, spec)

    def register(session: Session) -> dict[str, Any]:
        session.add(Corpus(name=made_by(work.job_id), source="tiny", job_id=work.job_id))
        session.flush()
        if spec.mixture == "cannot register":
            raise EngineError("The result must be new, but is old instead.", "Ask for something else.")
        return {"steps": step}

    return register


def _count(work: Work, spec: Evaluate) -> Generator[Event, None, int]:
    checkpoint = work.folder / "step"
    step = int(checkpoint.read_text()) if checkpoint.exists() else 0
    try:
        while step < spec.max_tokens:
            time.sleep(spec.block_size / 1000)
            step += 1
            yield Step(step, spec.max_tokens, 1 / step, 0.1, step * 10, 1000.0, {"law": 2.0})
            if step % SAVE_EVERY == 0:
                save(checkpoint, step)
                yield Saved(step, str(checkpoint))
        yield Evaluated(step, {"law": 1.5})
    finally:
        save(checkpoint, step)
    return step


@contextmanager
def _locked_gpus(work: Work) -> Iterator[None]:
    """Locks a file for each GPU that this process sees, and notes them; another holder is noted as an overlap."""
    numbers = [one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]
    with ExitStack() as locks:
        for number in numbers:
            file = locks.enter_context((work.settings.root / f"gpu-{number}.lock").open("a"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                (work.settings.root / f"gpu-{number}.overlap").touch()
            with (work.settings.root / "leased.txt").open("a") as leased:
                leased.write(f"{work.job_id} {number}\n")
        yield


def save(checkpoint: Path, step: int) -> None:
    """Whole or absent."""
    aside = checkpoint.with_suffix(".new")
    aside.write_text(str(step))
    aside.rename(checkpoint)


def _unwritable(*_: object) -> None:
    raise ValueError("the ending cannot be written")


def _misbehave(how: str) -> None:
    match how:
        case "problem":
            raise EngineError("The rate must be above 0, but is -1 instead.", "Choose another rate.")
        case "bug":
            raise KeyError("no such thing")
        case "memory":
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.")
        case "full disk":
            raise OSError(errno.ENOSPC, "No space left on device")
        case "unwritable":
            attempt.finish = _unwritable
            raise KeyError("no such thing")
        case "deaf":
            time.sleep(3600)
        case "orphans":
            subprocess.Popen(["sleep", "3600"])
            os.kill(os.getpid(), signal.SIGKILL)
        case "abort":
            os.abort()
