"""Runs one item per core in parallel, instead of all cores on each operation of one item."""

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
    """Yields `work(item)` for every item in order, with at most twice as many in flight as torch has threads.

    Each is computed by one thread, so results are bit-identical on any number of cores. Torch's thread count is
    restored when the last result was taken or the iterator was closed.
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
    """Restores torch's thread count afterwards, since a library (such as numba) may change it for the process."""
    threads = torch.get_num_threads()
    try:
        yield threads
    finally:
        torch.set_num_threads(threads)
