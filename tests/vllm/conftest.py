"""A home with a small seed model and three LoRA experts, and real vLLM servers for them, made by `make vllm`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.harness.vllm import MISSING, PYTHON, RunningVllm, running_vllm
from tests.forked_commands import run_forked
from tests.instruct_page import environment_of, use_home

EXPERTS = ("lo/code", "lo/law", "lo/sea")
LINES = {
    "law": "The tenant shall pay the rent on day {0} of each month and the landlord keeps {1} keys.\n",
    "code": "def f{0}(x):\n    return x + {1}  # adds {1} to the number\n",
    "sea": "The old ship sailed {0} miles over the grey waves, and {1} gulls cried above its mast.\n",
}


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


@pytest.fixture(scope="session")
def vllm(made_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningVllm]:
    """A server whose cache holds 12 blocks of 32 tokens, and that reads 32 tokens in a step."""
    tight = ("--num-gpu-blocks-override", "12", "--max-num-batched-tokens", "32")
    with running_vllm(made_home, tmp_path_factory.mktemp("server"), *tight) as server:
        yield server
