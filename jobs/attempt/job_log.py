"""A job's log: a file in the home of the machine that runs it and, with a shared store, a copy for all machines.

Below `logs/JOB` in the store lies the output of each attempt, named by its fence, so that no attempt replaces what
another one wrote. It is uploaded with each checkpoint and at the attempt's end. A store that is away ends no job, and
the machine's own file has it all.
"""

from __future__ import annotations

import json
from collections import deque
from contextlib import suppress
from pathlib import Path

from engine.errors import Problem
from engine.files import new_file
from jobs.attempt.work import JobClaim, log_path
from workbench.errors import StorageError
from workbench.registry import database
from workbench.schema.job_tables import Job
from workbench.settings import Settings
from workbench.store.object_store import LOGS, ObjectStore, object_store
from workbench.store.tombstones import of_deleted_jobs

MAX_BYTES = 1 << 20  # of the end of an attempt's output in the store, and of a log that is read
_TAIL_BYTES, _MOST_CHARACTERS = 8_000, 500  # of the last line
_NEWEST = "attempt.json"  # next to the log: the last attempt on this machine


def begin_log(settings: Settings, claim: JobClaim, start: int | None = None) -> None:
    """Notes, where there is a shared store, that the log from `start` (by default its end) on is of this attempt."""
    if not settings.store:
        return
    log = log_path(settings, claim.job_id)
    with suppress(OSError):  # a full disk must not end the job through its log
        log.parent.mkdir(parents=True, exist_ok=True)
        if start is None:
            start = log.stat().st_size if log.exists() else 0
        with new_file(log.with_name(_NEWEST), mark="claimed", synced=False) as file:
            file.write_text(json.dumps({"fence": claim.fence, "start": start}), encoding="utf-8")


def upload_log(settings: Settings, job_id: str) -> None:
    """Uploads the output of the last attempt on this machine, if there is a shared store that answers."""
    log, store = log_path(settings, job_id), object_store(settings.store)
    if store is None or (attempt := _last_attempt(log)) is None:
        return
    with suppress(Problem, OSError):
        fence, start = attempt
        if output := _end(log, MAX_BYTES, start):
            store.write(f"{LOGS}/{job_id}/{fence:08d}.txt", output)
            with database.reading(settings) as session:
                is_deleted = bool(of_deleted_jobs(session, [job_id]))  # not merely unknown, as to an older backup
            if is_deleted:  # while it was uploaded
                store.remove(f"{LOGS}/{job_id}")


def read_log(settings: Settings, job_id: str, num_bytes: int = MAX_BYTES) -> str:
    """The last whole lines of a job's log; from the store where another machine ran its last attempt."""
    if (store := object_store(settings.store)) and not is_newest_here(settings, job_id):
        with suppress(StorageError):
            if output := _stored_end(store, job_id, num_bytes):
                return output.decode("utf-8", "replace")
    return _end(log_path(settings, job_id), num_bytes).decode("utf-8", "replace")


def last_lines(settings: Settings, job_id: str, num_lines: int) -> list[str]:
    """The last lines of a job's log: of this machine's own file as many as it has, else of the last MiB."""
    lines = read_log(settings, job_id).splitlines()
    if len(lines) < num_lines and is_newest_here(settings, job_id):
        with suppress(FileNotFoundError), log_path(settings, job_id).open(encoding="utf-8", errors="replace") as log:
            lines = "".join(deque(log, num_lines)).splitlines()
    return lines[-num_lines:]


def is_newest_here(settings: Settings, job_id: str) -> bool:
    """Whether this machine's own file has the job's last attempt, as it always has without a shared store."""
    if not settings.store:
        return True
    attempt = _last_attempt(log_path(settings, job_id))
    with database.reading(settings) as session:
        job = session.get(Job, job_id)
        return job is None or (attempt is not None and attempt[0] == job.fence)


def _last_attempt(log: Path) -> tuple[int, int] | None:
    """The fence of the last attempt on this machine, and where its output begins in the log."""
    try:
        values = json.loads(log.with_name(_NEWEST).read_bytes())
        return int(values["fence"]), int(values["start"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _stored_end(store: ObjectStore, job_id: str, num_bytes: int) -> bytes:
    """The end of the output of all attempts, on whichever machine they ran."""
    output, folder = b"", f"{LOGS}/{job_id}"
    for name in sorted(store.names(folder), reverse=True):
        if name.endswith(".txt") and len(output) <= num_bytes:
            output = (store.read(f"{folder}/{name}") or b"") + output
    return output[-num_bytes:].partition(b"\n")[2] if len(output) > num_bytes else output


def _end(log: Path, num_bytes: int, start: int = 0) -> bytes:
    """The last whole lines of a file, from a position on; empty if there is none."""
    try:
        with log.open("rb") as file:
            first = max(start, file.seek(0, 2) - num_bytes)
            file.seek(first)
            output = file.read(num_bytes)
    except FileNotFoundError:
        return b""
    return output.partition(b"\n")[2] if first > start else output


def last_line(log: Path, start: int = 0) -> str:
    """The last non-blank line of a file after position `start`, shortened; empty without output."""
    with suppress(FileNotFoundError), log.open("rb") as file:
        file.seek(max(start, file.seek(0, 2) - _TAIL_BYTES))
        lines = file.read().decode("utf-8", "replace").split("\n")
        return next((line.strip()[:_MOST_CHARACTERS] for line in reversed(lines) if line.strip()), "")
    return ""
