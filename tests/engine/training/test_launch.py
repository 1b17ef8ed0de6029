"""torchrun under an iterator: stopped in order, ended with words, and never left behind."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.config import ModelConfig, TrainingConfig
from engine.errors import LostRankError, NonFiniteLossError, TrainingError
from engine.events import Progress, Step
from engine.methods.joint_training import JointTask, Recipe, train_distributed
from engine.models.families import fresh_model
from engine.training.ipc import from_line, read_failure, report_error, report_failure, to_line
from engine.training.loop import train
from tests.engine.training.launched import (
    CONFIG,
    FOR_EVER,
    assert_same_weights,
    eventually,
    losses,
    processes,
    train_separately,
    up_to,
)

pytestmark = pytest.mark.slow


def test_events_survive_the_line() -> None:
    for event in [Progress(0, None, "documents"), Step(1, 2, 0.1 + 0.2, 1e-3, 4, 5.5, {"“law”": float("inf")})]:
        assert from_line(to_line(event)) == event


def test_it_is_driven_by_its_caller_stops_in_order_and_goes_on_in_another_number_of_processes(
    seed, domains, tmp_path: Path, reference
) -> None:
    events = train_distributed(2, seed, domains, CONFIG, tmp_path / "two", log=tmp_path / "log")
    seen = up_to(events, 4)
    own = processes(tmp_path / "two")
    assert len(own) >= 3  # torchrun and its two
    addresses = {
        connection.laddr.ip
        for process in own
        for connection in process.net_connections()
        if connection.status == "LISTEN"
    }
    assert addresses
    assert addresses <= {"127.0.0.1", "::1"}
    time.sleep(0.5)
    assert not list((tmp_path / "two").glob("step-*"))  # it waits for the caller
    events.close()
    assert [path.name for path in (tmp_path / "two").iterdir()] == ["step-00000004"]
    assert not processes(tmp_path / "two")
    seen += train_separately(seed, domains, tmp_path / "two")
    assert losses(seen) == pytest.approx(losses(reference[1]), rel=1e-6)
    assert_same_weights(tmp_path / "two", reference[0])


@pytest.mark.parametrize("name", [pytest.param("domain-token", marks=pytest.mark.long), "lora", "moe"])
def test_other_methods_are_the_same_when_three_processes_divide_the_model(
    seed, domains, tmp_path: Path, name: str
) -> None:
    """Each process has an expert, or parts of the only one; layers are computed again in the backward pass."""
    recipe, config = Recipe(name), replace(CONFIG, activation_checkpointing=True, sequences_per_domain=3)
    if recipe.descriptor.only_expert:
        domains = [replace(domain, expert="one") for domain in domains]

    def distributed(folder: str, config: TrainingConfig) -> list[float]:
        events = train_distributed(
            3, seed, domains, config, tmp_path / folder, recipe=recipe, log=tmp_path / f"{folder}.log"
        )
        return losses(list(events))

    if name == "moe":  # each process balances its own tokens
        expected = distributed("whole", config)
    else:
        keys = [domain.expert for domain in domains]
        model = recipe.descriptor.build(seed, keys, None, config.seed)
        texts = [domain.open() for domain in domains]
        events = train(model, texts, config, tmp_path / "whole", only_experts=recipe.learns(keys))
        expected = losses(list(events))
    assert distributed("divided", replace(config, shard=True)) == pytest.approx(expected, rel=1e-6)
    assert_same_weights(tmp_path / "divided", tmp_path / "whole")


def test_modules_in_the_current_folder_reach_neither_torchrun_nor_its_processes(
    seed, domains, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("engine", "torch", "numpy", "random"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('from the current folder')")
    monkeypatch.chdir(tmp_path)
    events = train_distributed(2, seed, domains, CONFIG, tmp_path / "two")
    assert up_to(events, 1)[-1].step == 1  # type: ignore[union-attr]
    events.close()  # type: ignore[attr-defined]


def test_torchrun_by_hand_prints_events_and_trains_as_one_process_does(
    seed, domains, tmp_path: Path, reference
) -> None:
    JointTask(seed, tuple(domains), CONFIG, tmp_path / "hand", "cpu").write(tmp_path / "task.json")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += ["-m", "engine.methods.joint_worker", str(tmp_path / "task.json")]
    ended = subprocess.run(command, stdout=subprocess.PIPE, timeout=200, check=True)
    seen = [from_line(line) for line in ended.stdout.splitlines() if line.startswith(b"{")]
    assert losses(seen) == pytest.approx(losses(reference[1]), rel=1e-6)
    assert [type(event) for event in seen] == [type(event) for event in reference[1]]
    assert_same_weights(tmp_path / "hand", reference[0])


def test_a_killed_process_ends_all_and_is_named(seed, domains, tmp_path: Path) -> None:
    events = train_distributed(2, seed, domains, FOR_EVER, tmp_path / "killed", log=tmp_path / "log")
    up_to(events, 2)
    victim = next(p for p in processes(tmp_path / "killed") if p.environ().get("RANK") == "1")
    victim.kill()
    with pytest.raises(
        LostRankError, match=r"Process 1 of 2 ended without an error message: Signal 9 \(SIGKILL\)"
    ) as error:
        up_to(events, 1_000)
    assert error.value.rank == 1
    assert "fewer processes" in error.value.next_step
    assert not processes(tmp_path / "killed")
    assert not list((tmp_path / "killed").iterdir())


def test_closed_while_it_starts_it_ends_immediately(seed, domains, tmp_path: Path) -> None:
    events = train_distributed(2, seed, domains, FOR_EVER, tmp_path / "early", log=tmp_path / "log")
    assert next(events) == Progress(0, 2, "processes", "starting")
    events.close()
    assert not list((tmp_path / "early").iterdir())  # it did not wait for a step, which would leave a checkpoint
    eventually(lambda: not processes(tmp_path / "early"))


def test_no_process_outlives_a_caller_that_is_killed(seed, domains, tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from engine.methods.joint_training import train_distributed
from engine.methods.joint_training import JointTask
task = JointTask.read(Path({str(tmp_path / "task.json")!r}))
for event in train_distributed(2, task.seed_folder, task.domains, task.config, task.folder):
    print(event, flush=True)
"""
    JointTask(seed, tuple(domains), FOR_EVER, tmp_path / "left").write(tmp_path / "task.json")
    caller = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert caller.stdout is not None
    while b"Step(step=2" not in caller.stdout.readline():
        assert caller.poll() is None
    assert len(processes(tmp_path / "left")) >= 3
    caller.send_signal(signal.SIGKILL)
    caller.wait()
    caller.stdout.close()
    eventually(lambda: not processes(tmp_path / "left"))
    assert not list((tmp_path / "left").glob("step-*"))


def test_an_error_of_one_process_ends_all_with_its_last_line(seed, domains, tmp_path: Path) -> None:
    small = tmp_path / "small"
    fresh_model(ModelConfig(num_layers=1, width=32, num_heads=2, ffn_width=64), 100).save_pretrained(small)
    with pytest.raises(
        LostRankError, match=r"Process [01] of 2 raised an unexpected error: IndexError: index out of range"
    ):
        list(train_distributed(2, small, domains[:2], CONFIG, tmp_path / "bug", log=tmp_path / "log"))
    assert "Traceback" in (tmp_path / "log").read_text()
    assert not processes(tmp_path / "bug")


def test_a_problem_keeps_its_class_and_words_over_the_line(tmp_path: Path) -> None:
    report_error(tmp_path, 2, NonFiniteLossError("The loss must be a number, but is nan.", "Lower the learning rate."))
    problem = read_failure(tmp_path, 3)
    assert isinstance(problem, NonFiniteLossError)
    assert (problem.problem, problem.next_step) == (
        "The loss must be a number, but is nan.",
        "Lower the learning rate.",
    )
    report_error(tmp_path, 1, OSError(errno.ENOSPC, "No space left on device"))
    full = read_failure(tmp_path, 3)
    assert isinstance(full, OSError)
    assert full.errno == errno.ENOSPC
    report_error(tmp_path, 0, RuntimeError("CUDA error\nCUDA out of memory. Tried to allocate 2 GiB"))
    assert "Process 0 of 3" in str(read_failure(tmp_path, 3))
    lost = read_failure(tmp_path, 3)
    assert "fewer processes" in str(lost)
    assert isinstance(lost, LostRankError)
    assert lost.lacks_memory


@pytest.mark.parametrize(("exit_code", "lacks_memory"), [(-9, True), (-11, False), (1, False)])
def test_a_process_that_was_killed_lacked_memory_perhaps(tmp_path: Path, exit_code: int, lacks_memory: bool) -> None:
    report_failure(tmp_path, 1, exit_code, "Signal")
    lost = read_failure(tmp_path, 3)
    assert isinstance(lost, LostRankError)
    assert (lost.rank, lost.lacks_memory) == (1, lacks_memory)


def test_what_cannot_work_is_refused_before_a_process_starts(seed, domains, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"at most its 2 sequences .* at most 6 processes"):
        train_distributed(7, seed, domains, CONFIG, tmp_path / "no")
    with pytest.raises(TrainingError, match="less than one block of 500"):
        train_distributed(2, seed, domains, replace(CONFIG, block_size=500), tmp_path / "no")
    with pytest.raises(TrainingError, match="auto, cpu or cuda, but it is “cuda:1”"):
        train_distributed(2, seed, domains, CONFIG, tmp_path / "no", device="cuda:1")
    if not torch.cuda.is_available():
        with pytest.raises(TrainingError, match="2 processes and 0 GPUs"):
            train_distributed(2, seed, domains, CONFIG, tmp_path / "no", device="cuda")
    assert not (tmp_path / "no").exists()
