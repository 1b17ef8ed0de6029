"""The benchmark of load in short: each client gets the tokens of its answer alone, whatever kind of model it asks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import load

SCRIPT = Path(load.__file__)


@pytest.mark.slow
def test_each_client_gets_its_own_tokens_from_every_kind_of_model() -> None:
    command = [sys.executable, str(SCRIPT), "--small", "--minutes", "0.1", "--streams", "8"]
    environment = {**load.os.environ, "PYTHONPATH": str(SCRIPT.parents[1]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["wrong"] == 0, done.stderr
    assert result["whole"] > 0
    assert result["queue"]["as_promised"]
    assert {"duo", "bases", "layers/law"} <= set(result["answers_by_model"])


def test_memory_that_keeps_growing_fails_the_benchmark() -> None:
    steady = [600.0, 900.0, *[1000.0, 1010.0] * 10]
    growing = [1000.0 + 10 * number for number in range(40)]
    assert load.is_steady(steady)
    assert not load.is_steady(growing)
