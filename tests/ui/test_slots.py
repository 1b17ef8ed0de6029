"""Generations run a few at a time; who leaves frees his slot at once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing

import pytest

from ui.slots import Slots

WaitUntil = Callable[[Callable[[], bool]], None]


def counting(last: int, seconds: float = 0.0) -> Iterator[int]:
    for number in range(last):
        time.sleep(seconds)
        yield number


async def collected(slots: Slots, last: int) -> list[int]:
    async with aclosing(slots.stream(lambda: counting(last, 0.001))) as numbers:
        return [number async for number in numbers]


def test_a_stream_gives_everything_in_order() -> None:
    assert asyncio.run(collected(Slots(1), 50)) == list(range(50))


def test_many_streams_are_never_mixed_up() -> None:
    async def all_at_once() -> list[list[int]]:
        slots = Slots(4)
        return await asyncio.gather(*(collected(slots, last) for last in range(32)))

    assert asyncio.run(all_at_once()) == [list(range(last)) for last in range(32)]


def test_no_more_run_at_once_than_there_are_slots() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def one() -> Iterator[int]:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        yield from counting(3, 0.002)
        with lock:
            running -= 1

    async def all_at_once() -> None:
        slots = Slots(2)

        async def follow() -> None:
            async with aclosing(slots.stream(one)) as numbers:
                assert [number async for number in numbers] == [0, 1, 2]

        await asyncio.gather(*(follow() for _ in range(8)))

    asyncio.run(all_at_once())

    assert most == 2


def test_a_stream_lives_in_one_thread() -> None:
    def threads() -> Iterator[int]:
        for _ in range(20):
            yield threading.get_ident()

    async def follow() -> set[int]:
        async with aclosing(Slots(4).stream(threads)) as found:
            return {one async for one in found}

    assert len(asyncio.run(follow())) == 1


def test_leaving_closes_the_generator_and_frees_the_slot(wait_until: WaitUntil) -> None:
    closed = threading.Event()
    slots = Slots(1)

    def endless() -> Iterator[int]:
        try:
            while True:
                time.sleep(0.002)
                yield 1
        finally:
            closed.set()

    async def leave() -> None:
        async with aclosing(slots.stream(endless)) as numbers:
            await anext(numbers)

    asyncio.run(leave())

    assert closed.wait(2)
    wait_until(lambda: slots.num_busy == 0)


def test_leaving_while_waiting_never_begins(wait_until: WaitUntil) -> None:
    begun: list[str] = []
    slots = Slots(1)

    def named(name: str) -> Iterator[int]:
        begun.append(name)
        yield from counting(20, 0.005)

    async def second_leaves() -> None:
        async with aclosing(slots.stream(lambda: named("first"))) as first:
            await anext(first)
            second = slots.stream(lambda: named("second"))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(second), 0.03)
            await second.aclose()

    asyncio.run(second_leaves())
    wait_until(lambda: slots.num_busy == 0)

    assert begun == ["first"]


def test_an_error_reaches_who_waits() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    async def follow() -> None:
        async with aclosing(Slots(1).stream(broken)) as numbers:
            async for _ in numbers:
                pass

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(follow())
