"""A workbench to disturb: registry, broker, two workers and a scheduler, in a home on a small disk of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tests.gauntlet import clock
from tests.workbench.postgres import find_initdb
from workbench.registry import database
from workbench.settings import Settings, get_settings

ROOT = Path(__file__).parents[2]
DISK_BYTES = 256 << 20  # for an hour of trainings
TIMES = {
    "LEASE_SECONDS": "4",
    "HEARTBEAT_SECONDS": "1",
    "RECONCILE_SECONDS": "1.5",
    "CANCEL_SECONDS": "3",
    "WORKER_SLOTS": "1",
    "MAX_ATTEMPTS": "100",
    "THREADS": "1",
}
PROGRAMS = {
    "worker 1": ("tests.gauntlet.worker",),
    "worker 2": ("tests.gauntlet.worker",),
    "scheduler": ("tests.gauntlet.scheduler",),
}


class Stage:
    """The processes of one workbench; those that end are started again, as by a supervisor."""

    def __init__(self, folder: Path, has_disk: bool) -> None:
        self.folder, self.home, self.has_disk = folder, folder / "home", has_disk
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.server: subprocess.Popen[bytes] | None = None  # Redis
        self.port = 0
        self.control: list[str] = []  # pg_ctl

    @property
    def settings(self) -> Settings:
        return get_settings()

    def keep_running(self) -> None:
        """Starts what is not running."""
        for name, program in PROGRAMS.items():
            if name not in self.processes or self.processes[name].poll() is not None:
                with (self.folder / "servers.log").open("ab") as log:
                    self.processes[name] = subprocess.Popen(
                        [sys.executable, "-m", *program],
                        cwd=ROOT,
                        start_new_session=True,
                        stdout=log,
                        stderr=log,
                        env=os.environ | {clock.FILE: str(self._clock_of(name))},
                    )

    def set_clock(self, name: str, seconds: float) -> None:
        """Sets the clock of a program and of the runners it starts so far ahead of the machine's."""
        clock.set_clock(self._clock_of(name), seconds)

    def _clock_of(self, name: str) -> Path:
        return self.folder / f"clock of {name}"

    def runners(self) -> list[psutil.Process]:
        """The living processes that run jobs of this home, by their job's id."""
        matching = []
        for process in psutil.process_iter(["cmdline", "status"]):
            command = process.info["cmdline"] or []
            if "tests.gauntlet.runner" in command and process.info["status"] != psutil.STATUS_ZOMBIE:
                with suppress(psutil.Error):
                    if process.environ().get("WORKBENCH_HOME") == str(self.home):
                        matching.append(process)
        return sorted(matching, key=lambda process: process.pid)

    def stop(self) -> None:
        for process in self.processes.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGCONT)
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for runner in self.runners():
            with suppress(psutil.Error):
                runner.kill()

    # the broker and the database

    def start_redis(self) -> None:
        program = shutil.which("redis-server")
        assert program is not None
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self.server = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL)
        wait_until(lambda: can_connect(self.port), 30)

    def stop_redis(self) -> None:
        assert self.server is not None
        self.server.kill()
        self.server.wait()

    def run_postgres(self, *words: str) -> None:
        user = "postgres" if os.geteuid() == 0 else None
        subprocess.run(
            [*self.control, *words], check=True, user=user, cwd=self.folder / "pg", stdout=subprocess.DEVNULL
        )

    def start_postgres(self) -> None:
        self.run_postgres("-l", str(self.folder / "pg" / "log"), "-o", self._socket(), "start")

    def stop_postgres(self) -> None:
        self.run_postgres("-m", "immediate", "stop")

    def _socket(self) -> str:
        return f"-k {self.folder / 'pg'} -h ''"


@contextmanager
def staged(database_name: str, broker: str) -> Iterator[Stage]:
    """A new workbench on this database (sqlite, postgresql) and broker (folder, redis); nothing of it survives."""
    folder = Path(tempfile.mkdtemp(prefix="gauntlet-", dir="/tmp"))  # a socket's path must be short
    folder.chmod(0o755)
    stage = Stage(folder, has_disk=_mount(folder / "home"))
    before = {name: value for name, value in os.environ.items() if name.startswith("WORKBENCH_")}
    os.environ.update(
        {f"WORKBENCH_{name}": value for name, value in TIMES.items()} | {"WORKBENCH_HOME": str(stage.home)}
    )
    try:
        if broker == "redis":
            stage.port = free_port()
            stage.start_redis()
            os.environ["WORKBENCH_BROKER_URL"] = f"redis://127.0.0.1:{stage.port}/0"
        if database_name == "postgresql":
            os.environ["WORKBENCH_DATABASE_URL"] = _make_postgres(stage)
        get_settings.cache_clear()
        database.migrate(stage.settings)
        yield stage
    finally:
        stage.stop()
        database.close_engines()
        if stage.server is not None:
            stage.stop_redis()
        if stage.control:
            with suppress(subprocess.CalledProcessError):
                stage.stop_postgres()
        for name in [name for name in os.environ if name.startswith("WORKBENCH_")]:
            del os.environ[name]
        os.environ.update(before)
        get_settings.cache_clear()
        if stage.has_disk:
            subprocess.run(["umount", "-l", str(stage.home)], check=False)
        shutil.rmtree(folder, ignore_errors=True)


def _make_postgres(stage: Stage) -> str:
    initdb, folder = find_initdb(), stage.folder / "pg"
    assert initdb is not None
    folder.mkdir()
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
    stage.control = [str(initdb)]
    stage.run_postgres("-D", str(folder / "data"), "-U", "postgres", "-A", "trust", "-N", "--locale=C.UTF-8")
    stage.control = [str(initdb.with_name("pg_ctl")), "-D", str(folder / "data"), "-w"]
    stage.start_postgres()
    return f"postgresql://postgres@/postgres?host={folder}"


def _mount(home: Path) -> bool:
    """Makes the home a small disk of its own; False where this user may not mount one."""
    home.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=0700", "tmpfs", str(home)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def can_connect(port: int) -> bool:
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    return False


def wait_until(holds: Callable[[], object], seconds: float) -> bool:
    """Waits until something holds; False if it does not in time."""
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return True
