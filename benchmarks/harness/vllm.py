"""A real vLLM server for the adapters of a home, started for a benchmark or a test, and stopped with it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from ui.generation.vllm_server import VllmServer
from ui.serving.vllm_process import vllm_command
from workbench.exports.serve_config import served_seed
from workbench.registry.database import reading
from workbench.settings import Settings
from workbench.store.storage import get_storage

PYTHON = Path(__file__).parents[2] / ".venv" / "vllm" / "bin" / "python"
MISSING = "vLLM is not installed: make vllm"
SMALL_CPU = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
START_SECONDS = 300.0


@dataclass(frozen=True)
class RunningVllm:
    """A server that answers, its process, and the key that it requires."""

    url: str
    key: str
    process: subprocess.Popen[bytes]
    log: Path

    def client(self, silent_seconds: float = 120.0) -> VllmServer:
        return VllmServer(self.url, silent_seconds, self.key)

    def metric(self, name: str) -> float:
        """The sum of a counter or gauge of vLLM."""
        headers = {"Authorization": f"Bearer {self.key}"}
        lines = httpx.get(f"{self.url}/metrics", headers=headers, trust_env=False).text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"vllm:{name}{{"))


@contextmanager
def running_vllm(home: Path, folder: Path, *more: str) -> Iterator[RunningVllm]:
    """A vLLM server with the seed model of a home, with further options; its log is in `folder`."""
    settings, port, key = Settings(home=home), free_port(), "a key of this run"
    with reading(settings) as session:
        served = served_seed(session, get_storage(settings))
    command = vllm_command(served, str(PYTHON), port, key)
    words = [*command.words, "--enforce-eager", "--max-num-seqs", "16", "--block-size", "32", *more]
    with running(words, command.environment, port, folder / "vllm.log", key=key) as server:
        yield server


@contextmanager
def running(
    words: list[str], environment: dict[str, str], port: int, log: Path, *, key: str = ""
) -> Iterator[RunningVllm]:
    """A server that a command starts, once it answers. Raises RuntimeError with its log where it does not."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", **SMALL_CPU, **environment}
    with log.open("wb") as output:
        process = subprocess.Popen(words, env=environment, stdout=output, stderr=output, start_new_session=True)
    server = RunningVllm(f"http://127.0.0.1:{port}", key, process, log)
    try:
        _wait_for(server)
        yield server
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_for(server: RunningVllm) -> None:
    deadline = time.monotonic() + START_SECONDS
    while server.process.poll() is None and time.monotonic() < deadline:
        try:
            if httpx.get(f"{server.url}/health", trust_env=False).is_success:
                return
        except httpx.HTTPError:
            time.sleep(0.5)
    lines = server.log.read_text(errors="replace").splitlines()
    causes = [line for line in lines if "Error" in line]  # vLLM's last words only point at what came before
    raise RuntimeError("\n".join(["vLLM did not start:", *causes[:5], *lines[-20:]]))


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
