"""Work side by side: in order, one thread each, and no trace afterwards."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import torch

from engine.inference.scores import side_by_side


@pytest.fixture(autouse=True)
def threads() -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield 3
    torch.set_num_threads(before)


def test_answers_keep_the_order_of_the_items() -> None:
    def slow_at_first(number: int) -> int:
        time.sleep(0.02 if number == 0 else 0)
        return number

    assert list(side_by_side(slow_at_first, range(20))) == list(range(20))


def test_several_are_at_work_with_one_thread_each() -> None:
    meeting = threading.Barrier(3, timeout=30)  # nobody goes on before three are here

    def meet(_number: int) -> int:
        meeting.wait()
        return torch.get_num_threads()

    assert list(side_by_side(meet, range(6))) == [1] * 6


def test_only_a_few_items_are_taken_ahead() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    answers = side_by_side(lambda number: number, items())
    next(answers)
    assert len(taken) == 6
    answers.close()  # type: ignore[attr-defined]
    assert torch.get_num_threads() == 3


def test_torch_has_its_threads_again_after_an_error() -> None:
    def fail(_number: int) -> int:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        list(side_by_side(fail, range(3)))
    assert torch.get_num_threads() == 3
