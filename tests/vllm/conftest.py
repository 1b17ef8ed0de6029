"""A home with a small seed model and three LoRA experts, and real vLLM servers for them, made by `make vllm`."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.forked_commands import run_forked
from tests.instruct_page import environment_of, use_home
from tests.test_docs import ROOT
from ui.generation.vllm_server import VllmServer
from ui.serving.vllm_process import vllm_command
from workbench.registry.database import reading
from workbench.settings import get_settings
from workbench.store.storage import get_storage

PYTHON = ROOT / ".venv" / "vllm" / "bin" / "python"
MISSING = "vLLM is not installed: make vllm"
START_SECONDS = 300.0
EXPERTS = ("lo/code", "lo/law", "lo/sea")
LINES = {
    "law": "The tenant shall pay the rent on day {0} of each month and the landlord keeps {1} keys.\n",
    "code": "def f{0}(x):\n    return x + {1}  # adds {1} to the number\n",
    "sea": "The old ship sailed {0} miles over the grey waves, and {1} gulls cried above its mast.\n",
}


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
        lines = httpx.get(f"{self.url}/metrics", trust_env=False).text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"vllm:{name}{{"))


@pytest.fixture(scope="session")
def made_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not PYTHON.exists():
        pytest.skip(MISSING)
    folder = tmp_path_factory.mktemp("vllm")
    home = folder / ".workbench"
    for name, line in LINES.items():
        (folder / f"{name}.txt").write_text("\n".join(line.format(n, 3 * n) for n in range(400)), encoding="utf-8")
    small = "--layers 2 --width 128 --heads 4 --ffn-width 128 --max-positions 256 --vocab-size 384"
    steps = "--steps 30 --block-size 32 --sequences-per-domain 4 --evaluate-every 30 --sample-tokens 0"
    for command in (
        "workbench migrate",
        *(f"workbench corpus add {name} {name}.txt --here" for name in LINES),
        f"workbench seed make tiny --domains law,code,sea {small} --here",
        f"workbench train joint lo --seed-model tiny --domains law,code,sea --method lora {steps} --rank 4 "
        "--learning-rate 0.02 --here",
    ):
        status, output = run_forked(command, folder, environment_of(home), timeout=300)
        assert status == 0, f"{command}\n{output}"
    return home


@pytest.fixture
def home(made_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same as the home of this process."""
    return use_home(made_home, monkeypatch)


@contextmanager
def running_vllm(home: Path, folder: Path, *more: str, python: Path = PYTHON) -> Iterator[RunningVllm]:
    """A vLLM server with the seed model of a home, with further options."""
    with pytest.MonkeyPatch.context() as patch:
        use_home(home, patch)
        settings, port, key = get_settings(), _free_port(), "a key of the tests"
        with reading(settings) as session:
            command = vllm_command(session, get_storage(settings), str(python), port, key, "")
    environment = {
        **os.environ,
        **command.environment,
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
    }
    log = folder / "vllm.log"
    words = [*command.words, "--enforce-eager", "--max-num-seqs", "16", "--block-size", "32", *more]
    with log.open("wb") as output:
        process = subprocess.Popen(words, env=environment, stdout=output, stderr=output, start_new_session=True)
    server = RunningVllm(f"http://127.0.0.1:{port}", key, process, log)
    try:
        _wait(server)
        yield server
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="session")
def vllm(made_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningVllm]:
    """A server whose cache holds 12 blocks of 32 tokens, and that reads 32 tokens in a step."""
    tight = ("--num-gpu-blocks-override", "12", "--max-num-batched-tokens", "32")
    with running_vllm(made_home, tmp_path_factory.mktemp("server"), *tight) as server:
        yield server


def _wait(server: RunningVllm) -> None:
    deadline = time.monotonic() + START_SECONDS
    while server.process.poll() is None and time.monotonic() < deadline:
        try:
            if httpx.get(f"{server.url}/health", trust_env=False).is_success:
                return
        except httpx.HTTPError:
            time.sleep(0.5)
    pytest.fail(f"vLLM did not start:\n{server.log.read_text(errors='replace')[-4000:]}")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
