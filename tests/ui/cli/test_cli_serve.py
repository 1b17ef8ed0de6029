"""workbench serve: what cannot start is refused before anything listens."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ui.cli.app import main
from ui.serving import up
from ui.serving.vllm_process import vllm_command
from workbench.exports.serve_config import ServedSeed
from workbench.settings import Settings


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Settings, Mapping[str, str]]]:
    """What would have been run: settings, and the commands of the processes."""
    seen: list[tuple[Settings, Mapping[str, str]]] = []

    def serve(settings: Settings, _output: Any, commands: Mapping[str, str], *_: object) -> int:
        seen.append((settings, commands))
        return 0

    monkeypatch.setattr(up, "_serve", serve)
    return seen


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--url", "http://127.0.0.1:8100"], "These options are of vLLM. Add: --engine vllm"),
        (["--engine", "vllm"], "Give either the Python that has vLLM, or the URL of a server."),
        (["--engine", "vllm", "--url", "http://a", "--python", "p"], "Give either the Python"),
        (["--engine", "vllm", "--python", sys.executable], "has no vLLM. See docs/how_to/serve_on_vllm.md."),
        (["--engine", "vllm", "--python", "/no/python"], "cannot be run as a Python"),
        (["--engine", "vllm", "--url", "http://user:secret@host"], "must be http://NAME:PORT, without credentials"),
    ],
)
@pytest.mark.usefixtures("home")
def test_what_cannot_start_is_one_sentence(
    arguments: list[str], sentence: str, started: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *arguments]) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())
    assert not started


@pytest.mark.usefixtures("home")
def test_a_server_that_runs_is_taken_with_its_mode(started: list[tuple[Settings, Mapping[str, str]]]) -> None:
    assert main(["serve", "--engine", "vllm", "--url", "http://127.0.0.1:8100", "--mode", "route"]) == 0
    [(settings, commands)] = started
    assert (settings.vllm_url, settings.vllm_mode, list(commands)) == ("http://127.0.0.1:8100", "route", ["api"])
    assert up.environment(settings)["WORKBENCH_VLLM_MODE"] == "route"


@pytest.mark.usefixtures("home")
def test_the_own_engine_serves_without_another(started: list[tuple[Settings, Mapping[str, str]]]) -> None:
    assert main(["serve"]) == 0
    [(settings, commands)] = started
    assert (settings.vllm_url, list(commands)) == ("", ["api"])


def test_vllm_reads_no_library_from_the_current_folder(tmp_path: Path) -> None:
    served = ServedSeed("tiny", "ab" * 32, tmp_path, "float32", ["q_proj"], [8, 32])
    command = vllm_command(served, "python-of-vllm", 8000, "a key")
    assert command.environment["PYTHONSAFEPATH"] == "1"
    assert "--max-lora-rank 32" in " ".join(command.words)
    assert "a key" not in " ".join(command.words)
