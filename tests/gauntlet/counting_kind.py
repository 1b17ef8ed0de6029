"""A kind of job that hashes its way through some steps: with checkpoints, an artifact, and a result that is known.

It reads the spec of an evaluation: `max_tokens` is the number of steps, `block_size` the milliseconds of each.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
import uuid
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from engine.errors import DamagedFileError
from engine.events import Event, Saved, Step
from engine.files import new_folder, verify_folder
from jobs.attempt.work import Register, Work
from workbench.kinds.analysis import EVALUATE, Evaluate
from workbench.kinds.kind import known_kinds
from workbench.schema.tables import Corpus
from workbench.store.artifacts import register_artifact

SAVE_EVERY = 10
KEPT = 2  # checkpoints


def install() -> None:
    """Makes `evaluate` this kind, in this process."""
    known_kinds()["evaluate"] = replace(EVALUATE, runner="tests.gauntlet.counting_kind:run")


def job_spec(steps: int, milliseconds: int) -> Evaluate:
    return Evaluate(mixture="count", max_tokens=steps, block_size=milliseconds)


def made_by(job_id: str) -> str:
    """The unique name of the row that a job's effective run makes."""
    return f"made by {job_id}"


def chain_after(steps: int) -> str:
    """The result of an undisturbed run."""
    chain = ""
    for step in range(1, steps + 1):
        chain = link(chain, step)
    return chain


def link(chain: str, step: int) -> str:
    return hashlib.sha256(f"{chain}{step}".encode()).hexdigest()


def run(work: Work, spec: Evaluate) -> Generator[Event, None, Register]:
    """Continues from the newest undamaged checkpoint."""
    step, chain = newest(work.folder)
    while step < spec.max_tokens:
        time.sleep(spec.block_size / 1000)
        step += 1
        chain = link(chain, step)
        yield Step(step, spec.max_tokens, 1 / step, 0.1, step * 10, 1000.0, {})
        if step % SAVE_EVERY == 0:
            save(work.folder, step, chain)
            yield Saved(step, str(work.folder))
    artifact_id = uuid.uuid4().hex
    with work.storage.new(artifact_id) as folder:
        (folder / "chain").write_text(chain)

    def register(session: Session) -> dict[str, Any]:
        register_artifact(session, work.storage, artifact_id, "chain", job_id=work.job_id)
        session.add(Corpus(name=made_by(work.job_id), source=chain, job_id=work.job_id))
        session.flush()
        return {"chain": chain}

    return register


def save(root: Path, step: int, chain: str) -> None:
    with new_folder(root / f"step-{step:08d}") as folder:
        (folder / "state.json").write_text(json.dumps([step, chain]))
    for old in sorted(root.glob("step-*"))[:-KEPT]:
        shutil.rmtree(old)


def newest(root: Path) -> tuple[int, str]:
    for folder in sorted(root.glob("step-*"), reverse=True):
        try:
            verify_folder(folder)
        except DamagedFileError:
            continue
        step, chain = json.loads((folder / "state.json").read_text())
        return step, chain
    return 0, ""
