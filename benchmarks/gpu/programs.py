"""The steps of `make gpu` that are programs of the workbench: the tests for a CUDA device, and a replication."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

LIMIT_SECONDS = 600
ROOT = Path(__file__).resolve().parents[2]
PYTEST = [sys.executable, "-m", "pytest"]
WORKBENCH = [sys.executable, "-c", "import sys; from ui.cli.start import main; sys.exit(main())"]
Figures = dict[str, Any]


def device_tests(limit_seconds: float = LIMIT_SECONDS) -> Figures:
    """How many of `tests/gpu` passed, and which failed; without a CUDA device they are skipped."""
    output, _ = _output([*PYTEST, "tests/gpu", "--confcutdir=tests/gpu", "-q", "--tb=no"], limit_seconds)
    counts = {what: int(number) for number, what in re.findall(r"(\d+) (passed|failed|skipped|errors?)\b", output)}
    if not counts:
        return {"error": _last_line(output)}
    return {"passed": 0, "failed": 0, **counts, "failed_tests": re.findall(r"^(?:FAILED|ERROR) (\S+)", output, re.M)}


def replication(text: Path | None, size: str, device: str, home: Path, limit_seconds: float = LIMIT_SECONDS) -> Figures:
    """The jobs of a DEMix replication by state after at most `limit_seconds`, and its result once all are done.

    It is kept in the folder `home`: the next call goes on where this one was ended.
    """
    if text is None:
        return {"left_out": "It needs text: make gpu TEXT=FOLDER, a folder with train/ and novel/."}
    settings = {"WORKBENCH_HOME": str(home.absolute()), "WORKBENCH_DEVICE": device}
    name = f"demix-{size}"

    def workbench(*arguments: str, seconds: float = 120) -> tuple[str, int | None]:
        return _output([*WORKBENCH, *arguments], seconds, settings)

    output, code = workbench("migrate")
    if code == 0:
        of_text = [str(text.absolute()), "--size", size, "--seeds", "1", "--name", name]
        output, code = workbench("replicate", "demix", *of_text, "--here", seconds=limit_seconds)
    if code:
        return {"error": _last_line(output)}
    jobs = json.loads(workbench("job", "list", "--limit", "10000", "--json")[0])
    states = dict(Counter(job["state"] for job in jobs))
    figures: Figures = {"jobs": states}
    return (
        figures if set(states) - {"done"} else figures | {"result": _last_line(workbench("replicate", "show", name)[0])}
    )


def _output(command: list[str], limit_seconds: float, settings: dict[str, str] | None = None) -> tuple[str, int | None]:
    """What a program printed, and its exit code: None where it was interrupted at the limit."""
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | (settings or {}),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as program:
        try:
            return program.communicate(timeout=limit_seconds)[0], program.returncode
        except subprocess.TimeoutExpired:
            program.send_signal(signal.SIGINT)  # a job leaves its checkpoint
        try:
            return program.communicate(timeout=60)[0], None
        except subprocess.TimeoutExpired:
            os.killpg(program.pid, signal.SIGKILL)
            return program.communicate()[0], None


def _last_line(output: str) -> str:
    return (output.strip().splitlines() or ["no message"])[-1]
