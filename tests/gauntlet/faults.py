"""Faults, each a function that strikes a running workbench and ends when the fault is over."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import psutil
from sqlalchemy import select

from jobs.queue.submit import call_workers
from tests.gauntlet.stage import PROGRAMS, Stage
from workbench.registry.database import reading
from workbench.schema.job_tables import Job

LONGER_THAN_A_LEASE = 6.0  # seconds; see stage.TIMES
Fault = Callable[[Stage, random.Random], bool]  # False: there was nothing to strike


def kill_runner(stage: Stage, chance: random.Random) -> bool:
    return _signal(_one_of(stage.runners(), chance), signal.SIGKILL)


def kill_worker(stage: Stage, chance: random.Random) -> bool:
    stage.processes[chance.choice(["worker 1", "worker 2"])].kill()
    return True


def kill_scheduler(stage: Stage, chance: random.Random) -> bool:
    stage.processes["scheduler"].kill()
    return True


def kill_everything(stage: Stage, chance: random.Random) -> bool:
    """Workers, scheduler and all runners at the same moment, as a power cut would."""
    for process in [*stage.processes.values(), *stage.runners()]:
        with suppress(psutil.Error):
            process.kill()
    return True


def stop_runner(stage: Stage, chance: random.Random) -> bool:
    """Suspends a runner for longer than a lease: another takes over, and it wakes up beside it."""
    runner = _one_of(stage.runners(), chance)
    return _suspend([runner] if runner else [])


def stop_worker(stage: Stage, chance: random.Random) -> bool:
    worker = psutil.Process(stage.processes[chance.choice(["worker 1", "worker 2"])].pid)
    return _suspend([worker, *worker.children(recursive=True)])


def empty_queue(stage: Stage, chance: random.Random) -> bool:
    if stage.server is None:
        shutil.rmtree(stage.home / "queue", ignore_errors=True)
        return True
    subprocess.run(["redis-cli", "-p", str(stage.port), "flushall"], check=True, stdout=subprocess.DEVNULL)
    return True


def broker_away(stage: Stage, chance: random.Random) -> bool:
    stage.stop_redis()
    time.sleep(chance.uniform(1, LONGER_THAN_A_LEASE))
    stage.start_redis()
    return True


def deliver_again(stage: Stage, chance: random.Random) -> bool:
    """Five more messages for every job, also for those that are done."""
    with reading() as session:
        ids = list(session.scalars(select(Job.id)))
    for id in ids[-10:] * 5:
        call_workers(stage.settings, [id])
    return bool(ids)


def database_away(stage: Stage, chance: random.Random) -> bool:
    """PostgreSQL is shut down at once; SQLite is locked by another program. For a while around a lease."""
    seconds = chance.uniform(2, 2 * LONGER_THAN_A_LEASE)
    if stage.control:
        stage.stop_postgres()
        time.sleep(seconds)
        stage.start_postgres()
        return True
    with closing(sqlite3.connect(stage.home / "registry.db", timeout=30, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        time.sleep(seconds)
        connection.execute("ROLLBACK")
    return True


def full_disk(stage: Stage, chance: random.Random) -> bool:
    """Fills the disk, and again what is deleted meanwhile."""
    filler, until = stage.home / "filler", time.monotonic() + chance.uniform(1, LONGER_THAN_A_LEASE)
    with filler.open("wb", buffering=0) as file:
        while time.monotonic() < until:
            with suppress(OSError):
                while True:
                    file.write(bytes(4096))
            time.sleep(0.02)
    filler.unlink()
    return True


def read_only_folder(stage: Stage, chance: random.Random) -> bool:
    """The folder of jobs or of artifacts cannot be written for some seconds."""
    folder = stage.home / chance.choice(["jobs", "artifacts"])
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "--bind", str(folder), str(folder)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
        time.sleep(chance.uniform(1, LONGER_THAN_A_LEASE))
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
    return True


def flip_checkpoint(stage: Stage, chance: random.Random) -> bool:
    """One bit of the newest checkpoint of a running job, whose process is then killed."""
    return _damage(stage, chance, "step-*/*", _flip)


def cut_checkpoint(stage: Stage, chance: random.Random) -> bool:
    return _damage(stage, chance, "step-*/*", lambda data, chance: data[: chance.randrange(len(data))])


def flip_statistics(stage: Stage, chance: random.Random) -> bool:
    return _damage(stage, chance, "throughput.json", _flip)


def set_clock(stage: Stage, chance: random.Random) -> bool:
    """A clock goes wrong by up to a minute, and is set right again: that of a host, or of the one machine of SQLite."""
    names = [chance.choice(sorted(PROGRAMS))] if stage.control else sorted(PROGRAMS)
    seconds = chance.choice([-60, -15, 15, 60])
    for wrong in (seconds, 0):
        for name in names:
            stage.set_clock(name, wrong)
        time.sleep(LONGER_THAN_A_LEASE)
    return True


FAULTS: dict[str, Fault] = {
    "kill a runner": kill_runner,
    "kill a worker": kill_worker,
    "kill the scheduler": kill_scheduler,
    "kill everything": kill_everything,
    "suspend a runner": stop_runner,
    "suspend a worker": stop_worker,
    "empty the queue": empty_queue,
    "broker away": broker_away,
    "deliver again": deliver_again,
    "database away": database_away,
    "full disk": full_disk,
    "read-only folder": read_only_folder,
    "flip a bit of a checkpoint": flip_checkpoint,
    "cut a checkpoint": cut_checkpoint,
    "flip a bit of statistics": flip_statistics,
    "set a clock": set_clock,
}


def is_possible(name: str, stage: Stage) -> bool:
    """Whether this workbench can be struck so: a folder is no server, and not every user may mount a disk."""
    needs = {"broker away": stage.server is not None, "full disk": stage.has_disk, "read-only folder": stage.has_disk}
    return needs.get(name, True)


def _flip(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _damage(stage: Stage, chance: random.Random, pattern: str, change: Callable[[bytes, random.Random], bytes]) -> bool:
    """Damages a file of a job that runs, and kills its process, so that the next attempt reads it."""
    runners = stage.runners()
    chance.shuffle(runners)
    for runner in runners:
        with suppress(psutil.Error, OSError):
            job_id = runner.cmdline()[runner.cmdline().index("tests.gauntlet.runner") + 1]
            files = sorted((stage.home / "jobs" / job_id / "work").glob(pattern))
            if files:
                runner.suspend()
                _change(files[-1], change, chance)
                runner.kill()
                return True
    return False


def _change(file: Path, change: Callable[[bytes, random.Random], bytes], chance: random.Random) -> None:
    with suppress(FileNotFoundError, ValueError):
        file.write_bytes(change(file.read_bytes(), chance))


def _one_of(processes: list[psutil.Process], chance: random.Random) -> psutil.Process | None:
    return chance.choice(processes) if processes else None


def _signal(process: psutil.Process | None, number: signal.Signals) -> bool:
    if process is None:
        return False
    with suppress(psutil.Error):
        os.kill(process.pid, number)
    return True


def _suspend(processes: list[psutil.Process]) -> bool:
    for process in processes:
        with suppress(psutil.Error):
            process.suspend()
    time.sleep(LONGER_THAN_A_LEASE)
    for process in processes:
        with suppress(psutil.Error):
            process.resume()
    return bool(processes)
