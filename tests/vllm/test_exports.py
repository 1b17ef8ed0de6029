"""What is exported for vLLM is loaded by it: the folder of a model, adapters of it, and the script that starts it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.harness.vllm import PYTHON, RunningVllm, free_port, running
from engine.config import SamplingConfig
from engine.events import Token
from tests.forked_commands import run_forked
from tests.instruct_page import environment_of
from tests.vllm.conftest import EXPERTS
from ui.generation.model_host import ModelHost
from workbench.settings import get_settings
from workbench.specs.requests import MixtureRequest

pytestmark = pytest.mark.slow
PROMPT = "The tenant shall pay the rent on day 12 of"
LENGTH = 12


def test_the_script_starts_a_server_whose_adapters_write_what_ours_write(home: Path, tmp_path: Path) -> None:
    written = run_forked("workbench mixture serve-config lo served", tmp_path, environment_of(home), timeout=120)
    assert written[0] == 0, written[1]
    script, port = (tmp_path / "served" / "serve.sh").read_text(), free_port()
    assert "--port 8100 --dtype float32" in script
    options = "--enforce-eager --max-model-len 128 --max-num-seqs 4"  # what a small CPU needs
    script = script.replace("--port 8100", f"--port {port} --host 127.0.0.1 {options}")
    (tmp_path / "serve.sh").write_text(script)
    path = os.pathsep.join([str(PYTHON.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = environment_of(home) | {"PATH": path}
    with running(["sh", str(tmp_path / "serve.sh")], environment, port, tmp_path / "vllm.log") as server:
        outputs = {name: _complete(server, name) for name in ("seed:tiny", *EXPERTS)}
    assert outputs == {name: _own(name) for name in outputs}
    assert len(set(outputs.values())) == len(outputs)  # each adapter has an effect


def _complete(server: RunningVllm, name: str) -> str:
    body: dict[str, Any] = {"model": name, "prompt": PROMPT, "max_tokens": LENGTH, "temperature": 0}
    answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=120, trust_env=False)
    assert answer.is_success, answer.text
    text: str = answer.json()["choices"][0]["text"]
    return text


def _own(name: str) -> str:
    host = ModelHost(get_settings())
    events = host.stream(host.plan(MixtureRequest(name)), PROMPT, SamplingConfig(max_tokens=LENGTH, temperature=0))
    return "".join(event.text for event in events if isinstance(event, Token))
