"""Strikes a running workbench with one fault after another, and checks throughout what must always hold.

The seed determines the faults, their order, their lengths and the jobs; when a process is where, it does not.
"""

from __future__ import annotations

import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from engine.errors import Problem
from jobs import garbage_collection
from jobs.queue import submit
from tests.gauntlet.counting_kind import chain_after, install, job_spec, made_by
from tests.gauntlet.faults import FAULTS, is_possible
from tests.gauntlet.stage import Stage, staged, wait_until
from tests.gauntlet.training import TEXT, preparations, training, weights_of
from workbench.integrity.check import check_store
from workbench.job_records import jobs as rows
from workbench.kinds.data import ImportCorpus
from workbench.registry import database
from workbench.registry.database import reading, transaction
from workbench.schema.job_states import FINISHED, UNSUCCESSFUL
from workbench.schema.job_tables import Job
from workbench.schema.tables import Corpus, Domain, Expert, SeedModel

RECOVERY_SECONDS = 120.0  # after which a job that ran when a fault struck counts as lost
STRIKE_SECONDS = 15.0  # to wait for something to strike, such as a checkpoint
WAITING = 4  # unfinished jobs when a fault strikes
TEXT_EVERY = 5  # each such job imports a text
TRAINING_EVERY = 5  # each such job trains; the others count
_PLACES = re.compile(r"[0-9a-f]{32}|/tmp/gauntlet-[^/ ]+|[\d,]{4,}")  # ids, folders and bytes in errors
_ASIDE = re.compile(r"\..+\.(new|old|taken)")


@dataclass
class Report:
    """What happened on one database and broker."""

    database: str
    broker: str
    faults: Counter[str] = field(default_factory=Counter)
    not_tried: Counter[str] = field(default_factory=Counter)  # there was nothing to strike, or it is not possible here
    num_jobs: int = 0
    num_done: int = 0
    num_trainings: int = 0
    num_attempts: int = 0
    retried: Counter[str] = field(default_factory=Counter)  # failed jobs by their error: retried, as its words advise
    violations: list[str] = field(default_factory=list)
    recoveries: list[float] = field(default_factory=list)  # seconds from a fault's end to the end of the jobs it met

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), **recovery_of(self.recoveries)}


def recovery_of(seconds: Collection[float]) -> dict[str, float | None]:
    """Median, 95th percentile and longest recovery."""
    ordered = sorted(seconds)

    def at(share: float) -> float | None:
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 1) if ordered else None

    return {"recovery_p50": at(0.5), "recovery_p95": at(0.95), "recovery_max": at(1.0)}


class Campaign:
    """One workbench under faults."""

    def __init__(self, stage: Stage, report: Report, chance: random.Random) -> None:
        self.stage, self.report, self.chance = stage, report, chance
        self._steps: dict[str, int] = {}  # of the counting jobs
        self._trainings: list[str] = []
        self._weights = ""  # those of an undisturbed training
        self._done: set[str] = set()
        self._fences: dict[str, int] = {}
        self._text = stage.folder / "text.jsonl"
        self._text.write_text("\n".join(json.dumps({"text": f"the court {n} held " * 20}) for n in range(40)))

    def run(self, names: Iterator[str], until: float, most: int) -> None:
        """Strikes until the time is over or `most` faults have struck; then everything must end and be right."""
        self._prepare()
        for name in names:
            if time.monotonic() > until or self.report.faults.total() >= most:
                break
            self._strike(name)
        self._require(self._wait_for_all(RECOVERY_SECONDS), "not every job ended after the last fault")
        self._check_results()

    def _prepare(self) -> None:
        """Runs an undisturbed training, and what it needs."""
        self.stage.keep_running()
        for spec in [*preparations(self.stage.folder), training("undisturbed")]:
            self.report.num_jobs += 1
            job_id = submit.submit(spec)
            assert self._wait_for_all(RECOVERY_SECONDS), f"{spec.kind} did not end before the first fault"
        self._weights = weights_of(self.stage.settings, job_id)
        self._submit()

    def _strike(self, name: str) -> None:
        while len(self._unfinished()) < WAITING:
            self._submit()
        wait_until(self._watch_running, 20)
        time.sleep(self.chance.uniform(0, 1.5))
        struck = [job.id for job in self._jobs() if job.state == "running"]
        if not is_possible(name, self.stage) or not wait_until(lambda: self._has_struck(name), STRIKE_SECONDS):
            self.report.not_tried[name] += 1
            return
        self.report.faults[name] += 1
        ended_at = time.monotonic()
        recovered = wait_until(lambda: self._watch() and self._have_ended(struck), RECOVERY_SECONDS)
        self._require(recovered, f"after “{name}” a job that ran did not end: {self._states(struck)}")
        print(f"{name}: recovered in {time.monotonic() - ended_at:.1f} s", file=sys.stderr, flush=True)
        if recovered and struck:
            self.report.recoveries.append(round(time.monotonic() - ended_at, 1))

    def _has_struck(self, name: str) -> bool:
        """Strikes; False if there was nothing to strike at the moment."""
        self.stage.keep_running()
        if not self._unfinished():
            self._submit()
        return FAULTS[name](self.stage, self.chance)

    def _submit(self) -> None:
        number = self.report.num_jobs = self.report.num_jobs + 1
        steps = self.chance.randrange(100, 250)
        spec: Any = job_spec(steps, self.chance.randrange(12, 36))
        if number % TRAINING_EVERY == 0:
            spec = training(f"training-{number}")
        elif number % TEXT_EVERY == 1:
            spec = ImportCorpus(name=f"text-{number}", path=str(self._text))
        with transaction() as session:  # as `submit` does, without what the counting kind does not need
            job_id = rows.create_job(session, spec, priority=self.chance.randrange(3))
        submit.call_workers(self.stage.settings, [job_id])
        if spec.kind == "evaluate":
            self._steps[job_id] = steps
        elif spec.kind == "train-joint":
            self._trainings.append(job_id)

    # what must hold throughout

    def _watch_running(self) -> bool:
        return self._watch() and any(job.state == "running" for job in self._jobs())

    def _watch(self) -> bool:
        """Keeps the processes running, does what a user would, and checks rows; False while there is no registry."""
        self.stage.keep_running()
        try:
            with reading() as session:
                jobs = list(session.scalars(select(Job).order_by(Job.created_at)))
                session.expunge_all()
                effects = Counter(
                    job_id for table in (Corpus, SeedModel, Expert) for job_id in session.scalars(select(table.job_id))
                )
        except Problem:
            return False
        for job in jobs:
            num_effects = effects[job.id]
            self._require(num_effects == (job.state == "done"), f"{job.id} is {job.state}, effects: {num_effects}")
            self._require(not (job.id in self._done and job.state != "done"), f"{job.id} was done, is {job.state}")
            self._require(job.fence >= self._fences.get(job.id, 0), f"the fence of {job.id} went back")
            self._fences[job.id] = job.fence
            if job.state == "done":
                self._done.add(job.id)
            elif job.state in {"paused", *UNSUCCESSFUL}:
                self._go_on(job)
        return True

    def _go_on(self, job: Job) -> None:
        """Resumes or retries a job as its row advises: faults may end an attempt with a clear error."""
        is_clear = bool(job.error and job.next_step) and "unexpected error" not in job.error
        self._require(is_clear, f"{job.id} is {job.state} without a clear reason: {job.error}")
        with suppress(Problem):
            (submit.resume if job.state == "paused" else submit.retry)(job.id)
            error = _PLACES.sub("…", job.error)[:200]
            self.report.retried[f"{job.state}: {error}"] += 1

    def _jobs(self) -> list[Job]:
        with suppress(Problem), reading() as session:
            jobs = list(session.scalars(select(Job).order_by(Job.created_at)))
            session.expunge_all()
            return jobs
        return []

    def _unfinished(self) -> list[Job]:
        return [job for job in self._jobs() if job.state not in FINISHED]

    def _have_ended(self, ids: list[str]) -> bool:
        states = {job.id: job.state for job in self._jobs()}
        return bool(states) and all(states[id] == "done" for id in ids)

    def _states(self, ids: list[str]) -> str:
        jobs = [job for job in self._jobs() if job.id in ids and job.state != "done"]
        return str([(job.id[:8], job.state, job.error) for job in jobs])

    def _wait_for_all(self, seconds: float) -> bool:
        return wait_until(lambda: self._watch() and not self._unfinished() and bool(self._jobs()), seconds)

    def _require(self, holds: bool, violation: str) -> None:
        if not holds and violation not in self.report.violations:
            self.report.violations.append(violation)

    # what must hold in the end

    def _check_results(self) -> None:
        """Every result is that of an undisturbed run; files are as written; nothing is left behind."""
        jobs = self._jobs()
        self.report.num_done = sum(job.state == "done" for job in jobs)
        self.report.num_attempts = sum(job.fence for job in jobs)
        self._require(self.report.num_done == self.report.num_jobs == len(jobs), "not every submitted job is done")
        with reading() as session:
            chains = dict(session.execute(select(Corpus.name, Corpus.source)).tuples().all())
            imported = select(func.count(), Domain.data_sha256).where(Domain.name != TEXT)
            texts = session.execute(imported.group_by(Domain.data_sha256)).all()
        for id, steps in self._steps.items():
            self._require(chains.get(made_by(id)) == chain_after(steps), f"the result of {id} is another one")
        for id in self._trainings:
            weights = weights_of(self.stage.settings, id)
            self._require(weights == self._weights, f"the weights of {id} are not those of an undisturbed training")
        self._require(len(texts) == 1, f"one text was imported in {len(texts)} different ways")
        self.report.num_trainings = len(self._trainings)
        self.stage.stop()
        garbage_collection.SMALL_FILE_SECONDS = -1.0
        garbage_collection.remove_all_leftovers(self.stage.settings)
        check = check_store(self.stage.settings)
        self._require(check.ok, f"damaged: {[fault.faults for fault in check.faulty]}{check.registry_faults}")
        self._require(not check.leftovers, f"artifacts without a row: {check.leftovers}")
        debris = [str(path) for path in self.stage.home.rglob("*") if is_debris(path)]
        self._require(not debris, f"left behind: {debris[:5]}")


def is_debris(path: Path) -> bool:
    """Whether this is a file that was never completed, or the checkpoints of a job: all are done."""
    return bool(_ASIDE.fullmatch(path.name)) or (path.name == "work" and path.parent.parent.name == "jobs")


def shuffled_faults(chance: random.Random) -> Iterator[str]:
    """All kinds of fault in random order, again and again."""
    while True:
        yield from chance.sample(sorted(FAULTS), len(FAULTS))


@contextmanager
def _counted(report: Report) -> Iterator[None]:
    """An error of the campaign itself is a violation, not the end of the others."""
    try:
        yield
    except Exception as error:
        report.violations.append(f"the campaign ended early: {type(error).__name__}: {error}")


def run(seed: int, seconds: float, pairs: list[tuple[str, str]], most: int = 10**6) -> dict[str, Any]:
    """The report of a campaign on each database and broker, which share the time."""
    install()
    reports = []
    for database_name, broker in pairs:
        report, chance = Report(database_name, broker), random.Random(f"{seed} {database_name} {broker}")
        reports.append(report)
        with _counted(report), staged(database_name, broker) as stage:
            until = time.monotonic() + seconds / len(pairs)
            Campaign(stage, report, chance).run(shuffled_faults(chance), until, most)
        database.close_engines()
    recoveries = [recovery for report in reports for recovery in report.recoveries]
    return {
        "seed": seed,
        "num_faults": sum(report.faults.total() for report in reports),
        "num_jobs": sum(report.num_jobs for report in reports),
        "num_violations": sum(len(report.violations) for report in reports),
        **recovery_of(recoveries),
        "campaigns": [report.to_json() for report in reports],
    }
