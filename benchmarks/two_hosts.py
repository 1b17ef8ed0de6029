"""Two hosts of one workbench: C-BTM's eight trainings on two workers against one, and the recovery of a lost host.

Each host is a network namespace of this machine with a name, an address, one processor core, and a home of its own.
They share PostgreSQL, Redis and an S3 server (moto) behind a bridge. The trainings are those of `workbench train
clusters`: a model on each of eight clusters. Time is from the first start to the last end of a training, by the
database's clock. Then the host of a running training is lost: all of its processes are killed
and its link is cut. Recovery is the time until another host has made a further step; the lease, which must run out
before, has the default length.

Needs root, iproute2, PostgreSQL, Redis and the extras postgres, redis and s3.
Run: python benchmarks/two_hosts.py
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harness.benchmark import Figure, Options, not_run, report, run_all

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests import network  # noqa: E402
from tests.workbench.postgres import find_initdb  # noqa: E402
from workbench.answers.cards import JobCard  # noqa: E402
from workbench.job_records import jobs  # noqa: E402
from workbench.registry import database  # noqa: E402
from workbench.settings import get_settings  # noqa: E402

PASSWORD = "only-for-this-run"
DB_PORT, BROKER_PORT, STORE_PORT = 55432, 56379, 59000
SIZES = {
    "steps": (8 * 400, 4, "updates of the trainings together"),
    "rounds": (2, 1),
    "clusters": (8, 2, "with a training each"),
    "documents": (1600, 200),
    "lost_after": (300, 6, "updates of a training, until its host is lost"),
    "lease": (30.0, 6.0, "seconds without a heartbeat until a job is given to another host"),
}
TOPICS = 8


class Host:
    """A network namespace with a worker and a scheduler, on one processor core."""

    def __init__(self, host: network.Host, number: int, folder: Path) -> None:
        self.name, self._host, self._core = host.name, host, number % (os.cpu_count() or 1)
        self._home, self._log = folder / host.name, folder / "hosts.log"

    def start(self) -> None:
        for program in ("jobs.queue.worker", "jobs.queue.scheduler"):
            python = f"exec {sys.executable} -P -m {program}"
            command = ["ip", "netns", "exec", self.name, "unshare", "--uts", "taskset", "-c", str(self._core)]
            with self._log.open("ab") as log:
                subprocess.Popen(
                    [*command, "sh", "-c", f"hostname {self.name}; {python}"],
                    env={**os.environ, "WORKBENCH_HOME": str(self._home)},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=ROOT,
                    start_new_session=True,
                )

    def lose(self) -> None:
        """Cuts the link and kills every process."""
        self._host.cut_off()
        self._host.kill()

    def stop(self) -> None:
        self._host.kill()


def workbench(*words: str) -> None:
    """A command of the workbench, as a user of a third machine types it."""
    subprocess.run([str(Path(sys.executable).with_name("workbench")), *words], check=True, stdout=subprocess.DEVNULL)


@contextmanager
def services(folder: Path, lease_seconds: float) -> Iterator[None]:
    """The database, the broker and the store on this machine's address; settings in the environment."""
    address = network.ADDRESS
    control = _postgres(folder / "pg", address)
    broker = subprocess.Popen(
        ["redis-server", "--bind", address, "--port", str(BROKER_PORT), "--protected-mode", "no", "--save", ""],
        stdout=subprocess.DEVNULL,
    )
    store = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", address, "-p", str(STORE_PORT)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.environ.update(
        WORKBENCH_HOME=str(folder / "here"),
        WORKBENCH_DATABASE_URL=f"postgresql+psycopg://workbench:{PASSWORD}@{address}:{DB_PORT}/postgres",
        WORKBENCH_BROKER_URL=f"redis://{address}:{BROKER_PORT}/0",
        WORKBENCH_STORE="s3://experts/project",
        WORKBENCH_WORKER_SLOTS="1",
        WORKBENCH_THREADS="1",
        WORKBENCH_NO_AUTH="1",
        WORKBENCH_LEASE_SECONDS=str(lease_seconds),
        WORKBENCH_RECONCILE_SECONDS=str(lease_seconds / 2),
        AWS_ACCESS_KEY_ID="any",
        AWS_SECRET_ACCESS_KEY="any",
        AWS_DEFAULT_REGION="us-east-1",
        AWS_ENDPOINT_URL=f"http://{address}:{STORE_PORT}",
    )
    get_settings.cache_clear()
    try:
        _make_bucket()
        yield
    finally:
        store.kill()
        broker.kill()
        subprocess.run([*control, "-m", "immediate", "stop"], user="postgres", cwd="/", stdout=subprocess.DEVNULL)


def _postgres(folder: Path, address: str) -> list[str]:
    initdb = find_initdb()
    assert initdb is not None, "Install postgresql."
    folder.mkdir()
    password = folder / "password"
    password.write_text(PASSWORD)
    for path in (folder, password):
        shutil.chown(path, "postgres")
    data = str(folder / "data")
    as_postgres = {"user": "postgres", "cwd": str(folder), "check": True, "stdout": subprocess.DEVNULL}
    subprocess.run(
        [str(initdb), "-D", data, "-U", "workbench", "-A", "scram-sha-256", f"--pwfile={password}", "-N"],
        **as_postgres,  # type: ignore[call-overload]
    )
    with (folder / "data" / "pg_hba.conf").open("a") as rules:
        rules.write(f"host all all {network.NETWORK}.0/24 scram-sha-256\n")
    control = [str(initdb.with_name("pg_ctl")), "-D", data, "-w"]
    options = f"-k {folder} -h {address} -p {DB_PORT}"
    subprocess.run([*control, "-l", str(folder / "log"), "-o", options, "start"], **as_postgres)  # type: ignore[call-overload]
    return control


def _make_bucket() -> None:
    import s3fs

    def made() -> bool:
        with suppress(Exception):
            s3fs.S3FileSystem(skip_instance_cache=True).mkdir("experts")
            return True
        return False

    wait_until(made, 60)


def wait_until(holds: Callable[[], object], seconds: float) -> float:
    """Waits for something and returns how long it took; raises TimeoutError."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > seconds:
            raise TimeoutError(f"nothing happened for {seconds} s")
        time.sleep(0.1)
    return time.monotonic() - began


def write_corpus(path: Path, num_documents: int) -> None:
    """Documents of eight topics with words of their own."""
    draw = random.Random(0)
    words = [["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(150)] for _ in range(TOPICS)]
    with path.open("w") as file:
        for number in range(num_documents):
            text = " ".join(draw.choices(words[number % TOPICS], k=120))
            file.write(json.dumps({"text": text}) + "\n")


def cards(kind: str) -> list[JobCard]:
    with database.reading(get_settings()) as session:
        return jobs.list_jobs(session, kind=kind)


def train_clusters(name: str, num_steps: int, num_clusters: int) -> float:
    """Seconds from the first start to the last end of the trainings."""
    before = {card.id for card in cards("train-joint")}
    workbench(
        *("train", "clusters", "topics", name, "--seed-model", "little", "--steps", str(num_steps)),
        *("--block-size", "128", "--learning-rate", "0.003", "--clip", "1", "--checkpoint-every", "100000"),
        *("--evaluate-every", "100000", "--sample-tokens", "0"),
    )

    def mine() -> list[JobCard]:
        return [card for card in cards("train-joint") if card.id not in before]

    wait_until(lambda: len(mine()) == num_clusters and all(card.state == "done" for card in mine()), 1800)
    done = mine()
    return max(card.finished_at or 0 for card in done) - min(card.started_at or 0 for card in done)


def recover(hosts: dict[str, Host], mixture: str, lost_after: int) -> tuple[float, float]:
    """Seconds from the loss of a training's host to its next start and to its next step, on another host."""
    further = lost_after // 6
    workbench(
        *("train", "expert", "lost", "--mixture", mixture, "--domain", "topics/0", "--no-join", "--steps", "100000"),
        *("--block-size", "128", "--learning-rate", "0.003", "--clip", "1", "--checkpoint-every", str(further)),
        *("--evaluate-every", "100000", "--sample-tokens", "0"),
    )
    job_id = cards("train-expert")[0].id

    def last() -> tuple[int, str]:
        """The last step, and the owner."""
        with database.reading(get_settings()) as session:
            card, points = jobs.get_job(session, job_id), jobs.metrics(session, job_id, "loss")
        return max((point.step for point in points), default=0), card.owner

    wait_until(lambda: last()[0] > lost_after, 600)
    step, owner = last()
    hosts[owner.partition(":")[0]].lose()
    began = time.monotonic()
    wait_until(lambda: last()[1] not in ("", owner), 300)
    start = time.monotonic() - began
    wait_until(lambda: last()[0] > step + further, 300)
    workbench("job", "cancel", job_id)
    return start, time.monotonic() - began


def prepare(folder: Path, num_clusters: int, num_documents: int) -> None:
    """Text, a seed model, and its clusters as domains."""
    write_corpus(folder / "text.jsonl", num_documents)
    commands = (
        "migrate",
        f"corpus add text {folder / 'text.jsonl'} --here",
        "seed make little --domains text --layers 4 --width 128 --vocab-size 512 --max-positions 256 --here",
        f"cluster find topics --domains text --clusters {num_clusters} --map-size 0 --here",
        "cluster domains topics --here",
    )
    run_all(commands, os.environ)


def compare(hosts: Sequence[Host], number: int, options: Any) -> float:
    """How many times as fast the trainings are on two hosts as on one."""
    seconds = {}
    for count in (1, 2):
        for host in hosts[:count]:
            host.start()
        seconds[count] = train_clusters(f"mix-{number}-{count}", options.steps, options.clusters)
        for host in hosts[:count]:
            host.stop()
    ratio = seconds[1] / seconds[2]
    one, two = (f"{seconds[count]:.0f} s" for count in (1, 2))
    print(f"the trainings: {one} on one host, {two} on two: {ratio:.2f} times as fast", flush=True)
    return ratio


def missing() -> str:
    """What this machine lacks; empty if nothing."""
    programs = [name for name in ("redis-server", "taskset", "unshare") if shutil.which(name) is None]
    programs += [] if find_initdb() else ["PostgreSQL"]
    packages = [name for name in ("moto", "s3fs", "psycopg", "redis") if find_spec(name) is None]
    return network.missing() or (f"needs {', '.join(programs + packages)}" if programs + packages else "")


def main() -> None:
    options = Options(__doc__, SIZES).parse_args()
    if reason := missing():
        not_run(reason)
    folder = Path(tempfile.mkdtemp(prefix="two-hosts-"))
    folder.chmod(0o755)
    try:
        with network.hosts(2) as made, services(folder, options.lease):
            hosts = [Host(host, number, folder) for number, host in enumerate(made)]
            prepare(folder, options.clusters, options.documents)
            ratios = [compare(hosts, number, options) for number in range(options.rounds)]
            for host in hosts:
                host.start()
            start, step = recover({host.name: host for host in hosts}, "mix-0-2", options.lost_after)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    figures = [
        Figure("the trainings on two hosts over one, times as fast", ratios, at_least=1.8, statistic=min),
        Figure("until the training of a lost host starts again", [start], "s"),
        Figure("until it is further than before", [step], "s"),
    ]
    report(options, figures)


if __name__ == "__main__":
    main()
