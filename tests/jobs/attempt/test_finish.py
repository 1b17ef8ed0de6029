"""Whatever goes wrong ends in a state, a cause and a next step."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from engine.errors import CorpusError, EngineError, LostRankError
from jobs.attempt.finish import outcome_of
from workbench.errors import BadSpecError, DiskFullError


class OutOfMemoryError(RuntimeError):
    """Named like torch's."""


class AcceleratorError(RuntimeError):
    """Named like torch's."""


def ending(error: Exception, tmp_path: Path) -> tuple[str, str, str]:
    one = outcome_of(error, tmp_path, Path("log.txt"))
    return one.state, one.problem, one.next_step


def test_a_problem_keeps_its_words(tmp_path: Path) -> None:
    problem = EngineError("The rate must be above 0.", "Choose another.")
    assert ending(problem, tmp_path) == ("failed", "The rate must be above 0.", "Choose another.")


def test_a_bad_document_is_named_by_file_and_line(tmp_path: Path) -> None:
    problem = CorpusError("The line must be JSON.", "Repair it.", path="a.jsonl", line=7)
    assert ending(problem, tmp_path) == ("failed", "a.jsonl, line 7: The line must be JSON.", "Repair it.")


def test_all_complaints_of_a_spec_are_reported(tmp_path: Path) -> None:
    assert ending(BadSpecError(["One.", "Two."]), tmp_path)[1] == "One. Two."


@pytest.mark.parametrize(
    "error",
    [
        DiskFullError("The disk is full.", "Free some space."),
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_full_disk_pauses(error: Exception, tmp_path: Path) -> None:
    state, problem, next_step = ending(error, tmp_path)
    assert state == "paused"
    assert "disk" in problem
    assert next_step.startswith("Free some space")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
    ],
)
def test_too_little_memory_pauses_and_says_what_to_make_smaller(error: Exception, tmp_path: Path) -> None:
    state, problem, next_step = ending(error, tmp_path)
    assert (state, problem[:26]) == ("paused", "There is not enough memory")
    assert next_step.startswith("Resume the job when memory is free")
    assert "smaller block_size" in next_step


def test_a_process_of_several_that_lacked_memory_pauses_and_another_loss_fails(tmp_path: Path) -> None:
    problem = "Process 1 of 2 ended without an error message: Signal 9 (SIGKILL)."
    state, shown, next_step = ending(LostRankError(problem, lacks_memory=True), tmp_path)
    assert (state, shown) == ("paused", problem)
    assert next_step.startswith("Resume the job when memory is free")
    assert ending(LostRankError(problem), tmp_path)[0] == "failed"


@pytest.mark.parametrize(
    "error",
    [
        AcceleratorError("CUDA error: unspecified launch failure\nCUDA kernel errors might be reported later"),
        RuntimeError("CUDA error: unspecified launch failure"),
    ],
)
def test_an_error_of_a_gpu_says_what_to_check(error: Exception, tmp_path: Path) -> None:
    state, problem, next_step = ending(error, tmp_path)
    assert (state, problem) == ("failed", "A GPU reported an error (CUDA error: unspecified launch failure).")
    assert "nvidia-smi" in next_step


def test_an_error_of_our_own_names_its_type_its_message_and_the_log(tmp_path: Path) -> None:
    state, problem, next_step = ending(KeyError("weights"), tmp_path)
    assert state == "failed"
    assert "KeyError: 'weights'" in problem
    assert "log.txt" in next_step


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_a_folder_that_cannot_be_written_is_named_with_what_to_do(number: int, tmp_path: Path) -> None:
    error = OSError(number, os.strerror(number), "/home/jobs/work")
    state, problem, next_step = ending(error, tmp_path)
    assert (state, problem) == ("failed", f"/home/jobs/work cannot be used: {os.strerror(number)}.")
    assert "retry the job" in next_step
