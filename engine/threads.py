"""One piece of work per core, instead of all cores on each operation of one piece."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def side_by_side(work: Callable[[Item], Answer], items: Iterable[Item]) -> Iterator[Answer]:
    """`work` of every item, in the order of the items, at most twice as many at once as torch has threads here.

    Each is computed by one thread, so an answer is the same to the bit on any number of cores. Torch has its threads
    again when the last answer was taken or the iterator was closed.
    """
    ahead: deque[Future[Answer]] = deque()
    with (
        preserve_threads() as threads,
        ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool,
    ):
        for item in items:
            ahead.append(pool.submit(work, item))
            if len(ahead) == 2 * threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


@contextmanager
def preserve_threads() -> Iterator[int]:
    """Torch has its threads again afterwards, whatever a library (numba, for one) sets for all of the process."""
    threads = torch.get_num_threads()
    try:
        yield threads
    finally:
        torch.set_num_threads(threads)
