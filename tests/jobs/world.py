"""A registry with its settings, and the processes that a test started around it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import func, select
from tiny_kind import job_spec, made_by, released

from workbench.answers.cards import JobCard
from workbench.job_records import jobs as rows
from workbench.kinds.training.train_joint import TrainJoint
from workbench.registry import database
from workbench.schema.job_tables import Job
from workbench.schema.tables import Corpus
from workbench.settings import Settings

HERE = Path(__file__).parent


@dataclass
class RunningWorkbench:
    """A registry with its settings, and the processes that a test started."""

    settings: Settings
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, script: str, *arguments: str, **settings: str) -> subprocess.Popen[bytes]:
        """Starts one of the scripts beside this file, or a module of ours, in a session of its own."""
        program = [str(HERE / script)] if script.endswith(".py") else ["-m", script]
        process = subprocess.Popen(
            [sys.executable, *program, *arguments], env={**os.environ, **settings}, start_new_session=True
        )
        self.processes.append(process)
        return process

    def card(self, job_id: str) -> JobCard:
        with database.reading(self.settings) as session:
            return rows.get_job(session, job_id)

    def row(self, job_id: str) -> Job:
        with database.reading(self.settings) as session:
            row = session.get_one(Job, job_id)
            session.expunge(row)  # as it is now
            return row

    def events(self, job_id: str) -> list[str]:
        with database.reading(self.settings) as session:
            return [event.message for event in rows.events(session, job_id)]

    def num_effects(self, job_id: str) -> int:
        """How often the job took effect."""
        with database.reading(self.settings) as session:
            name = Corpus.name == made_by(job_id)
            return session.scalar(select(func.count()).select_from(Corpus).where(name)) or 0

    def num_starts(self, job_id: str) -> int:
        """How often the work of the job was begun."""
        starts = self.settings.jobs_folder / job_id / "starts.txt"
        return len(starts.read_text().splitlines()) if starts.exists() else 0

    def runners(self, job_id: str) -> list[psutil.Process]:
        """The living processes that run the job."""
        result = []
        for process in psutil.process_iter(["cmdline", "status"]):
            command = process.info["cmdline"] or []
            if job_id in command and process.info["status"] != psutil.STATUS_ZOMBIE:
                result.append(process)
        return result

    def release(self) -> None:
        """Lets jobs count that are “held”."""
        released(self.settings).touch()

    def wait_for(self, job_id: str, *states: str, seconds: float = 120) -> JobCard:
        """The job's card once it is in one of the states."""
        eventually(lambda: self.card(job_id).state in states, seconds, lambda: str(self.card(job_id)))
        return self.card(job_id)


def create(how: str = "count", steps: int = 100, milliseconds: int = 8, *, num_gpus: int = 0, **more: Any) -> str:
    """A job in the queue that counts, or a joint training that asks for GPUs; no worker is called."""
    joint = TrainJoint(name="m", seed_model="s", domains=["law", "code"], num_gpus=num_gpus)
    with database.transaction() as session:
        return rows.create_job(session, joint if num_gpus else job_spec(how, steps, milliseconds), **more)


def eventually(holds: Callable[[], object], seconds: float = 60, story: Callable[[], str] = str) -> None:
    """Waits until something holds."""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, f"it did not happen within {seconds} s: {story()}"
        time.sleep(0.05)
