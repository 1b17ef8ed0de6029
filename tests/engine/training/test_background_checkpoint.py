"""A checkpoint that is written while the training goes on: of the right moment, whole or absent, one at a time."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from threading import Event as Gate
from threading import Timer
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # for ranks, here and in the processes of the tests

from ranks import Run, by_itself, together, write_in_background
from test_distributed import CONFIG as MANY
from test_distributed import make_run  # noqa: F401 (a fixture)

from engine.config import TrainingConfig
from engine.errors import NonFiniteLossError
from engine.events import Evaluated, Event, Saved, Saving, Step, TrainingFinished
from engine.files import verify_folder
from engine.models.expert_model import trainable
from engine.training import checkpoint, run_state
from engine.training.checkpoint import checkpoint_folder, newest_step, own_state, state_at, training_state
from engine.training.distributed import ProcessGroup
from engine.training.loop import train
from engine.training.optimizer import make_optimizer
from engine.training.run_state import BackgroundCheckpoint

KEYS = ["law", "code"]
CONFIG = TrainingConfig(
    num_steps=8,
    block_size=16,
    sequences_per_domain=2,
    learning_rate=3e-3,
    checkpoint_every=3,
    evaluate_every=4,
    evaluation_blocks=2,
    seed=1,
)


@pytest.fixture
def start(make_model, make_texts, tmp_path: Path) -> Callable[..., Iterator[Event]]:
    """Starts or resumes a training in a folder."""

    def start(folder: str = "own", **changes: Any) -> Iterator[Event]:
        return train(make_model(KEYS), make_texts(KEYS), replace(CONFIG, **changes), tmp_path / folder)

    return start


@pytest.fixture
def expected(start: Callable[..., Iterator[Event]]) -> list[float]:
    """The losses of the same training that waits for its checkpoints, in the folder `waiting`."""
    return losses(start("waiting"))


@pytest.fixture
def in_background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_state, "LEAST_BYTES", 0)


@pytest.fixture
def gate(in_background: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """The thread writes nothing before it is open."""
    gate, write = Gate(), run_state.write_own

    def write_own(*arguments: Any) -> dict[str, str]:
        assert gate.wait(30)
        return write(*arguments)

    monkeypatch.setattr(run_state, "write_own", write_own)
    yield gate
    gate.set()


def losses(events: Iterator[Event] | list[Event]) -> list[float]:
    return [event.loss for event in events if isinstance(event, Step)]


def order(events: Iterator[Event] | list[Event]) -> list[tuple[str, int]]:
    kinds = (Saving, Saved, Step, TrainingFinished)
    return [(type(event).__name__, event.step) for event in events if isinstance(event, kinds)]


def assert_same_state(folder: Path, other: Path, step: int) -> None:
    verify_folder(checkpoint_folder(folder, step))
    ours, theirs = state_at(folder, step), state_at(other, step)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())


@pytest.mark.parametrize("precision", ["fp32", "bf16_weights"])
def test_an_update_changes_no_copy(make_model, make_texts, tmp_path: Path, precision: str) -> None:
    config = replace(CONFIG, precision=precision)  # type: ignore[arg-type]
    parameters = trainable(make_model(KEYS), None)
    optimizer = make_optimizer(parameters, config)

    def update() -> None:
        for parameter in parameters.values():
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()

    update()
    state = training_state(parameters, optimizer)
    before = {name: tensor.clone() for name, tensor in state.items()}
    copies = own_state(state, copied=True).tensors
    update()
    assert all(not torch.equal(state[name], tensor) for name, tensor in before.items() if "." in name)
    assert all(torch.equal(copies[name], tensor) for name, tensor in before.items())


def test_the_checkpoint_is_of_its_step_however_many_updates_are_made_meanwhile(
    start, gate: Gate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(run_state, "LEAST_BYTES", 1 << 60)
        expected = losses(start("waiting", num_steps=6))
    events = []
    for event in start(num_steps=6):
        events.append(event)
        if isinstance(event, Step) and event.step == 5:
            assert not list((tmp_path / "own").glob("step-*"))
            gate.set()
    assert losses(events) == expected
    seen = order(events)
    assert seen.index(("Saving", 3)) < seen.index(("Step", 5)) < seen.index(("Saved", 3))
    for step in (3, 6):
        assert_same_state(tmp_path / "own", tmp_path / "waiting", step)


def test_a_second_one_waits_for_the_first_and_so_does_the_end(
    start, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = BackgroundCheckpoint.finish

    def open_and_finish(self: BackgroundCheckpoint) -> None:
        gate.set()
        finish(self)
        gate.clear()

    monkeypatch.setattr(BackgroundCheckpoint, "is_written", lambda _: False)
    monkeypatch.setattr(BackgroundCheckpoint, "finish", open_and_finish)
    assert order(start()) == [
        *[("Step", 1), ("Step", 2), ("Step", 3), ("Saving", 3), ("Step", 4), ("Step", 5), ("Step", 6)],
        *[("Saved", 3), ("Saving", 6), ("Step", 7), ("Step", 8)],
        *[("Saved", 6), ("Saving", 8), ("Saved", 8), ("TrainingFinished", 8)],
    ]


def test_a_stop_waits_for_it_and_writes_its_own(start, expected: list[float], gate: Gate, tmp_path: Path) -> None:
    events, seen = start(), []
    for event in events:
        seen += losses([event])
        if len(seen) == 4:
            break
    Timer(0.1, gate.set).start()
    events.close()  # type: ignore[attr-defined]
    assert [path.name for path in sorted((tmp_path / "own").iterdir())] == ["step-00000003", "step-00000004"]
    assert seen + losses(start()) == expected
    assert_same_state(tmp_path / "own", tmp_path / "waiting", 8)


@pytest.mark.parametrize("is_background", [False, True])
@pytest.mark.parametrize("stop_after", [None, 7])
def test_a_full_disk_is_the_same_error_as_when_the_training_waits(
    start, expected: list[float], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_background: bool, stop_after
) -> None:
    write, full = checkpoint.write_full, OSError(errno.ENOSPC, "No space left on device")

    def write_full(folder: Path, *arguments: Any) -> dict[str, str]:
        if "step-00000006" in folder.name:
            (folder / "parameters.safetensors").write_bytes(b"cut")
            raise full
        return write(folder, *arguments)

    monkeypatch.setattr(checkpoint, "write_full", write_full)
    monkeypatch.setattr(run_state, "LEAST_BYTES", 0 if is_background else 1 << 60)
    with pytest.raises(OSError, match="No space left") as raised:
        _run_to(start(), stop_after)
    assert raised.value is full
    assert [path.name for path in (tmp_path / "own").iterdir()] == ["step-00000003"]
    monkeypatch.undo()
    assert losses(start()) == expected[3:]


def _run_to(events: Iterator[Event], step: int | None) -> None:
    for event in events:
        if isinstance(event, Step) and event.step == step:
            events.close()  # type: ignore[attr-defined]


def test_an_error_of_the_training_leaves_and_announces_the_checkpoint_that_was_being_written(
    start, gate: Gate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    events = start()
    for event in events:
        if isinstance(event, Evaluated) and event.step == 4:
            break
    monkeypatch.setattr(BackgroundCheckpoint, "is_written", lambda _: False)  # else it is announced before the error
    monkeypatch.setattr("engine.training.loop.clip_and_step", _raise)
    Timer(0.1, gate.set).start()
    assert next(events) == Saved(3, str(checkpoint_folder(tmp_path / "own", 3)))
    with pytest.raises(NonFiniteLossError):
        next(events)
    assert [path.name for path in (tmp_path / "own").iterdir()] == ["step-00000003"]
    assert newest_step(tmp_path / "own", CONFIG) == 3


def test_an_error_of_the_training_is_raised_although_the_checkpoint_cannot_be_written_either(
    start, gate: Gate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    events = start()
    monkeypatch.setattr(checkpoint, "write_full", _full_disk)
    monkeypatch.setattr(BackgroundCheckpoint, "is_written", lambda _: False)
    for event in events:
        if isinstance(event, Evaluated) and event.step == 4:
            break
    monkeypatch.setattr("engine.training.loop.clip_and_step", _raise)
    gate.set()
    with pytest.raises(NonFiniteLossError):
        next(events)
    assert list((tmp_path / "own").iterdir()) == []


def _full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def _raise(*_: object) -> None:
    raise NonFiniteLossError("It is nan.", "Lower the rate.")


@pytest.mark.parametrize("free", [None, 100])
def test_without_memory_for_a_copy_the_training_waits(
    start, expected: list[float], in_background: None, monkeypatch: pytest.MonkeyPatch, free: int | None
) -> None:
    monkeypatch.setattr(run_state, "free_main_memory", lambda: free)
    events = list(start())
    assert losses(events) == expected
    assert _num_waited(events) == 3


def test_a_small_training_waits(start) -> None:
    assert _num_waited(list(start())) == 3


def test_a_large_one_waits_for_its_last_checkpoint_only(start, in_background: None) -> None:
    assert _num_waited(list(start())) == 1


def _num_waited(events: list[Event]) -> int:
    seen = order(events)
    return sum(after == ("Saved", step) for (kind, step), after in pairwise(seen) if kind == "Saving")


# killed ----------------------------------------------------------------------------------------------------


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_while_it_writes() -> None:
    write = run_state.write_own

    def write_own(folder: Path, *arguments: Any) -> dict[str, str]:
        hashes = write(folder, *arguments)
        if "step-00000006" in folder.name:
            file = folder / "parameters.safetensors"
            os.truncate(file, file.stat().st_size // 2)
            _kill()
        return hashes

    run_state.write_own = write_own


def _kill_before_it_has_its_name() -> None:
    finish = BackgroundCheckpoint.finish

    def killed(self: BackgroundCheckpoint) -> None:
        self._written.result()
        if self.step == 6:
            _kill()
        finish(self)

    BackgroundCheckpoint.finish = killed  # type: ignore[method-assign]


def _kill_when_it_has_its_name() -> None:
    folders = checkpoint._folders

    def killed(root: Path) -> list[Path]:
        if (root / "step-00000006").exists():
            _kill()
        return folders(root)

    checkpoint._folders = killed


def _train_until_killed(run: Run, arrange: Callable[[], None]) -> None:
    write_in_background()
    arrange()
    by_itself(run)
    os._exit(0)


@pytest.mark.parametrize(
    ("arrange", "newest"),
    [(_kill_while_it_writes, 3), (_kill_before_it_has_its_name, 3), (_kill_when_it_has_its_name, 6)],
)
def test_a_kill_leaves_the_checkpoint_before_or_this_one(
    make_run,  # noqa: F811
    arrange: Callable[[], None],
    newest: int,
) -> None:
    run, full = make_run("ab", "cut", checkpoint_every=3), make_run("ab", "full", checkpoint_every=3)
    process = multiprocessing.get_context("forkserver").Process(target=_train_until_killed, args=(run, arrange))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert newest_step(run.folder, run.config) == newest
    assert by_itself(run).losses == by_itself(full).losses[newest:]
    assert all(path.name.startswith("step-") for path in run.folder.iterdir())  # nothing that was cut off is left


# several processes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shard", [False, True])
def test_processes_agree_on_the_update_at_which_all_have_written(make_run, shard: bool) -> None:  # noqa: F811
    waiting = make_run("ab", "waiting", checkpoint_every=4, shard=shard)
    run = replace(waiting, folder=waiting.folder.with_name("own"), in_background=True)
    first, second = together(2, run)
    assert not first.error
    assert order(first.events) == order(second.events)
    reference = together(2, waiting)[0]
    assert first.losses == reference.losses
    assert _num_waited(first.events) == 1
    assert _num_waited(reference.events) == 3
    for step in (8, MANY.num_steps):
        assert_same_state(run.folder, waiting.folder, step)


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_it_is_resumed_on_any_number_of_processes_to_the_same_bits(make_run, num_ranks: int) -> None:  # noqa: F811
    waiting = make_run("ab", "waiting", checkpoint_every=4, shard=num_ranks == 3)
    run = replace(waiting, folder=waiting.folder.with_name("own"), in_background=True)
    resumed = []
    for one in (waiting, run):
        first = together(2, replace(one, stop_after=5))[0]
        resumed.append([first.losses, together(num_ranks, one)[0].losses])
    assert resumed[0] == resumed[1]
    assert [len(part) for part in resumed[1]] == [5, 5]
    assert_same_state(run.folder, waiting.folder, MANY.num_steps)


def test_a_process_that_cannot_write_its_part_leaves_the_checkpoint_before(make_run) -> None:  # noqa: F811
    run = make_run("ab", "many", shard=True, checkpoint_every=3)
    shown = together(2, replace(run, cannot_write=6, in_background=True))
    assert shown[1].error == "OSError: no space left"
    assert shown[0].error.startswith("LostRankError: A process of the training is gone")
    assert [path.name for path in run.folder.iterdir()] == ["step-00000003"]
    assert newest_step(run.folder, run.config) == 3


def test_an_error_of_one_process_leaves_no_part(make_run) -> None:  # noqa: F811
    run = replace(make_run("ab", "many", checkpoint_every=3), in_background=True, broken_after=4)
    shown = together(2, run)
    assert all(one.error.startswith("NonFiniteLossError") for one in shown)
    assert {path.name for path in run.folder.iterdir()} <= {"step-00000003"}  # there if it was written so soon


@pytest.mark.parametrize(("num_processes", "device", "pays"), [(1, "cpu", True), (2, "cpu", False), (2, "meta", True)])
def test_several_processes_on_cpus_have_no_core_for_a_thread(
    in_background: None, monkeypatch: pytest.MonkeyPatch, num_processes: int, device: str, pays: bool
) -> None:
    monkeypatch.setattr(run_state, "free_main_memory", lambda: 1 << 40)
    team, state = ProcessGroup(), {"a": torch.zeros(1, device=device)}
    team.num_processes = num_processes
    assert run_state.pays_off(state, team) is pays
