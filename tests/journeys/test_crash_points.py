"""A job killed before any of its file operations or commits, or after any commit, ends as one that nobody disturbed.

Points are counted by Python's audit events (files) and in the driver's commit. The state after a file operation is that
before the next point. Each point is a fork that kills itself there, as `kill -9` would: no handler runs. A second fork
takes the job back, runs it to its end and collects garbage. Rows, files and bits are compared with an undisturbed run.

The suite tries some points of most kinds; `CRASH_POINTS=some` some of every kind but those in LEFT_OUT, and
`CRASH_POINTS=all` every one (`make crash-points`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.engine.default import DefaultDialect

from engine.files import faults_in
from jobs import garbage_collection
from jobs.attempt.attempt import run_here
from workbench.job_records import jobs, leases
from workbench.kinds.kind import known_kinds, parse_spec
from workbench.registry import database
from workbench.schema import database_clock
from workbench.schema.base import Base
from workbench.settings import get_settings
from workbench.store.storage import get_storage

from .conftest import work

TRAINING = {"num_steps": 4, "block_size": 32, "learning_rate": 5e-3, "checkpoint_every": 2, "evaluate_every": 2}
SPECS: dict[str, dict[str, Any]] = {
    "import-corpus": {"name": "again", "path": "HERE/sea.jsonl"},
    "make-seed": {"name": "other", "domains": ["court"], "vocab_size": 300, "shape": {"num_layers": 1, "width": 16}},
    "train-joint": {"name": "m", "seed_model": "seed", "domains": ["court", "sea"], "training": TRAINING},
    "train-expert": {"name": "sailor", "domain": "sea", "mixture": "small", "training": TRAINING},
    "make-mixture": {"name": "both", "experts": ["small/court", "small/kitchen"]},
    "average-experts": {"name": "mean", "experts": ["small/court", "small/kitchen"]},
    "join-experts": {"name": "joined", "experts": ["small/court", "small/kitchen"], "tokens": 512, "block_size": 32},
    "evaluate": {"mixture": "small", "block_size": 32, "max_tokens": 128},
    "export-expert": {"expert": "small/court", "folder": "HERE/out"},
    "pack-expert": {"expert": "small/court", "file": "HERE/court.expert"},
    "measure-overlap": {"domains": ["court", "sea"]},
    "find-clusters": {"name": "topics", "num_clusters": 2, "dimension": 3, "map_size": 0, "domains": ["court", "sea"]},
}
_MODE = {
    **{"name": "parts", "seed_model": "seed", "domains": ["court"]},
    **{"shape": {"num_blocks": 1}, "training": TRAINING},
}
_FIND = {"kind": "find-clusters", **SPECS["find-clusters"]}
MORE: dict[str, dict[str, Any]] = {  # slower ones, and those that need others before them: only by CRASH_POINTS
    "export-mixture": {"mixture": "small", "folder": "HERE/out"},
    "train-mode": _MODE,
    "compose-mode": {"name": "duo", "experts": ["parts/court", "more/sea"], "domains": ["sea"], "training": TRAINING},
    "certify-addition": {"expert": "sailor", "mixture": "small", "block_size": 32, "max_tokens": 128},
    "certify-removal": {
        **{"expert": "small/court", "mixture": "small", "block_size": 32, "max_tokens": 128},
        **{"num_blocks": 5, "num_prefixes": 10, "prefix_length": 8, "continuation_length": 8},
    },
    "classify": {"mixture": "small", "path": "NEAR/tasks", "num_shots": 1, "num_validation": 4, "num_seeds": 1},
    "unpack-expert": {"file": "NEAR/court.expert", "name": "again"},
    "import-expert": {"source": "NEAR/model", "seed_model": "seed", "name": "back"},
    "make-domain": {"clustering": "topics", "name": "picked", "clusters": ["0"]},
    "merge-clusters": {"clustering": "topics", "clusters": ["0", "1"]},
    "split-cluster": {"clustering": "topics", "cluster": "0"},
    "make-cluster-domains": {"clustering": "topics"},
    "pin-documents": {"clustering": "topics", "cluster": "0", "documents": ["FIRST_OF_SEA"]},
    "cluster-part": SPECS["find-clusters"],
}
LEFT_OUT = {  # kinds that are not tried, and why
    "push-expert": "it writes to a hub, which answers over the network",
    "selfcheck": "it stores nothing, and its result holds times",
}
BEFORE: dict[str, list[dict[str, Any]]] = {  # jobs that are done before
    "compose-mode": [{"kind": "train-mode", **_MODE, **own} for own in ({}, {"name": "more", "domains": ["sea"]})],
    "certify-addition": [{"kind": "train-expert", **SPECS["train-expert"]}],
    "unpack-expert": [{"kind": "pack-expert", "expert": "small/court", "file": "NEAR/court.expert"}],
    "import-expert": [{"kind": "export-expert", "expert": "small/court", "folder": "NEAR/model"}],
    **{key: [_FIND] for key, spec in MORE.items() if "clustering" in spec},
}
KINDS = {**SPECS, **MORE} if os.environ.get("CRASH_POINTS") else SPECS
TRIED = 3  # points of each kind in the suite
_WRITES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.truncate"}
_VOLATILE = {"at", "created_at", "started_at", "finished_at", "sent_at", "fence", "attempt", "owner", "progress_note"}
_VOLATILE |= {"eta_seconds", "eta_soonest", "eta_latest", "lease_until"}
_TABLES_LEFT_OUT = {"job_events", "metrics", "registry_identity"}  # their numbers are of attempts, speeds and times
_ID = re.compile(r"[0-9a-f]{32}")


# killed at a point ---------------------------------------------------------------------------------------


class Points:
    """Counts the points of a job's own thread and kills this process at one of them."""

    def __init__(self, folder: Path, kill_at: int) -> None:
        self.count = 0
        self._folder, self._kill_at = str(folder), kill_at
        self._thread = threading.get_ident()
        sys.addaudithook(self._hear)
        commit = DefaultDialect.do_commit

        def do_commit(dialect: DefaultDialect, connection: Any) -> None:
            self.pass_one()
            commit(dialect, connection)
            self.pass_one()

        DefaultDialect.do_commit = do_commit  # type: ignore[method-assign]

    def pass_one(self) -> None:
        if threading.get_ident() != self._thread:
            return  # the heartbeat's, of which there may be any number
        self.count += 1
        if self.count == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            changes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if changes and isinstance(path, str | os.PathLike) and os.fspath(path).startswith(self._folder):
                self.pass_one()
        elif event in _WRITES:
            path = arguments[0]
            if isinstance(path, str | os.PathLike):
                is_here = os.fspath(path).startswith(self._folder)
                if is_here or not os.path.isabs(path):  # relative to an open folder, as rmtree names them
                    self.pass_one()


def in_a_fork(work: Callable[[], object]) -> int:
    """The wait status of a fork that does the work; 0 where nothing was raised."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitpid(process, 0)[1]


def run_job(job_id: str) -> None:
    for _ in run_here(job_id):
        pass


def recover(job_id: str) -> None:
    """What scheduler and worker do after a lease: take the job back, run it, remove what is of no use."""
    settings = get_settings()
    with database.transaction() as session:
        later = database_clock.now(session) + settings.lease_seconds + 1
        leases.expire(session, later, settings.max_attempts)
        state = jobs.get_job(session, job_id).state
    if state == "queued":
        run_job(job_id)
    garbage_collection.SMALL_FILE_SECONDS = -1.0
    garbage_collection.remove_all_leftovers(settings)


# what there is in the end ------------------------------------------------------------------------------


_NOT_COMPARED = {"trash", "verified"}  # the second: records of when files were last hashed, which hold times


def outcome(home: Path, outputs: Path) -> dict[str, list[str]]:
    """Rows, files and bits, without times, attempts and random ids."""
    with database.reading() as session:
        tables = {
            table.name: [dict(row) for row in session.execute(select(table)).mappings()]
            for table in Base.metadata.sorted_tables
            if table.name not in _TABLES_LEFT_OUT
        }
    names = {row["id"]: name_of(table, row) for table, rows in tables.items() for row in rows if "id" in row}

    def plain(text: str) -> str:
        return _ID.sub(lambda id: names.get(id.group(), "an id without a row"), text)

    rows = [
        plain(f"{table} {json.dumps(stable(row), sort_keys=True)}") for table, rows in tables.items() for row in rows
    ]
    storage = get_storage()
    faults = [f"{id}: {fault}" for id in storage.ids() for fault in faults_in(storage.path(id))]
    files = [
        f"{plain(str(path.relative_to(folder)))} {bits_of(path)}"
        for folder in (home, outputs)
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith("registry.db") and not _NOT_COMPARED.intersection(path.parts)
    ]
    folders = [
        plain(str(path.relative_to(home)))
        for path in home.rglob("*")
        if path.is_dir() and not _NOT_COMPARED.intersection(path.parts)
    ]
    return {"rows": sorted(rows), "files": sorted(files), "folders": sorted(folders), "faults": faults}


def name_of(table: str, row: dict[str, Any]) -> str:
    return f"{table}:{row.get('sha256') or row.get('name') or row.get('title') or row['artifact_id']}"


def stable(row: dict[str, Any]) -> dict[str, Any]:
    kept = {
        name: value for name, value in row.items() if name not in _VOLATILE and not name.startswith(("eta", "lease"))
    }
    if isinstance(kept.get("result"), dict):
        kept["result"] = {name: value for name, value in kept["result"].items() if name != "throughput"}
    return kept


def bits_of(path: Path) -> str:
    """The hash of a file that is the same in each run; records and logs hold times."""
    if path.parent.name == "records" or path.name in ("log.txt", "registry.json"):
        return ""
    return hashlib.sha256(path.read_bytes()).hexdigest()


# the test -------------------------------------------------------------------------------------------------


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    folder = tmp_path / "outputs"
    folder.mkdir()
    return folder


def first_document(path: Path) -> str:
    """The SHA-256 of the first text in a file of JSON lines."""
    text = json.loads(path.read_text(encoding="utf-8").partition("\n")[0])["text"]
    return hashlib.sha256(text.encode()).hexdigest()


def write_task(folder: Path) -> None:
    """A task of two labels."""
    folder.mkdir(parents=True)
    for split in ("train", "test"):
        examples = [{"text": f"{split} {number}", "label": ("odd", "even")[number % 2]} for number in range(9)]
        (folder / f"{split}.jsonl").write_text("\n".join(map(json.dumps, examples)), encoding="utf-8")


def test_every_kind_of_job_is_tried_or_left_out_for_a_reason() -> None:
    kinds = {name for name, kind in known_kinds().items() if kind.spec.__module__.startswith("workbench.kinds.")}
    assert kinds == {*SPECS, *MORE, *LEFT_OUT}
    assert not set(LEFT_OUT) & {*SPECS, *MORE}


@pytest.fixture(params=sorted(KINDS))
def start(
    request: pytest.FixtureRequest, home: Path, outputs: Path, trained_home: Path, tmp_path: Path
) -> Iterator[Callable[[], str]]:
    """Puts the home back to where one job of a kind waits in the queue; gives its id."""
    ready = tmp_path / "ready"
    shutil.copytree(trained_home, home, dirs_exist_ok=True)
    shutil.copy(trained_home / "sea.jsonl", tmp_path / "sea.jsonl")
    write_task(tmp_path / "tasks" / "parity")
    for before in BEFORE.get(request.param, ()):
        card = work(json.loads(json.dumps(before).replace("NEAR", str(tmp_path))))
        assert card.state == "done", card.error
    text = json.dumps({"kind": request.param, **KINDS[request.param]}).replace("HERE/sea", f"{tmp_path}/sea")
    text = text.replace("FIRST_OF_SEA", first_document(tmp_path / "sea.jsonl"))
    spec = parse_spec(json.loads(text.replace("HERE", str(outputs)).replace("NEAR", str(tmp_path))))
    with database.transaction() as session:
        job_id = jobs.create_job(session, spec)
    database.close_engines()
    shutil.copytree(home, ready)

    def put_back() -> str:
        database.close_engines()
        for folder in (home, outputs):
            shutil.rmtree(folder)
        shutil.copytree(ready, home)
        outputs.mkdir()
        return job_id

    yield put_back
    shutil.rmtree(ready)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_job_killed_at_any_point_ends_as_if_nothing_had_happened(
    start: Callable[[], str], home: Path, outputs: Path, tmp_path: Path
) -> None:
    job_id, counted = start(), tmp_path / "count"

    def undisturbed() -> None:
        points = Points(tmp_path, 0)
        run_job(job_id)
        counted.write_text(str(points.count))

    assert in_a_fork(undisturbed) == 0
    expected = outcome(home, outputs)
    assert not expected["faults"]
    num_points = int(counted.read_text())
    assert num_points > 4

    def killed(point: int) -> None:
        Points(tmp_path, point)
        run_job(job_id)

    differ = {}
    for point in points_to_try(num_points, job_id):
        start()
        assert in_a_fork(lambda point=point: killed(point)) == signal.SIGKILL, f"point {point} was not reached"
        assert in_a_fork(lambda: recover(job_id)) == 0, f"not done after point {point}"
        got = outcome(home, outputs)
        if got != expected:
            differ[point] = {part: difference(got[part], expected[part]) for part in got if got[part] != expected[part]}
    assert not differ, json.dumps(differ, indent=1)[:6000]


def difference(got: list[str], expected: list[str]) -> dict[str, list[str]]:
    more, less = Counter(got) - Counter(expected), Counter(expected) - Counter(got)
    return {"more": sorted(more.elements()), "less": sorted(less.elements())}


def points_to_try(count: int, seed: str) -> list[int]:
    """All points, or the first, the last, and some between that differ with each run."""
    everything = list(range(1, count))
    if os.environ.get("CRASH_POINTS") == "all":
        return everything
    step = max(1, count // TRIED)
    first = int(seed, 16) % step + 1
    print(f"points {first} to {count} by {step}")
    return sorted({*everything[-2:], *range(first, count, step)})
