"""Generations run a few at a time; who leaves frees his slot at once."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import aclosing

import pytest

from engine.inference.cancellation import CancelledError, check_cancelled
from ui.errors import RateLimitExceededError, ServiceUnavailableError
from ui.generation.worker_pool import WorkerPool

WaitUntil = Callable[[Callable[[], bool]], None]


def counting(last: int, seconds: float = 0.0) -> Iterator[int]:
    for number in range(last):
        time.sleep(seconds)
        yield number


async def collected(slots: WorkerPool, last: int) -> list[int]:
    async with aclosing(slots.stream(lambda: counting(last, 0.001))) as numbers:
        return [number async for number in numbers]


def test_a_stream_gives_everything_in_order() -> None:
    assert asyncio.run(collected(WorkerPool(1), 50)) == list(range(50))


def test_many_streams_are_never_mixed_up() -> None:
    async def together() -> list[list[int]]:
        slots = WorkerPool(4)
        return await asyncio.gather(*(collected(slots, last) for last in range(32)))

    assert asyncio.run(together()) == [list(range(last)) for last in range(32)]


def test_no_more_run_concurrently_than_there_are_slots() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def one() -> Iterator[int]:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        yield from counting(3, 0.002)
        with lock:
            running -= 1

    async def together() -> None:
        slots = WorkerPool(2)

        async def follow() -> None:
            async with aclosing(slots.stream(one)) as numbers:
                assert [number async for number in numbers] == [0, 1, 2]

        await asyncio.gather(*(follow() for _ in range(8)))

    asyncio.run(together())

    assert most == 2


def test_a_stream_lives_in_one_thread() -> None:
    def threads() -> Iterator[int]:
        for _ in range(20):
            yield threading.get_ident()

    async def follow() -> set[int]:
        async with aclosing(WorkerPool(4).stream(threads)) as result:
            return {one async for one in result}

    assert len(asyncio.run(follow())) == 1


def test_leaving_closes_the_generator_and_frees_the_slot(wait_until: WaitUntil) -> None:
    closed = threading.Event()
    slots = WorkerPool(1)

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

    assert closed.wait(60)
    wait_until(lambda: slots.num_busy == 0)


def computing(started: threading.Event, ended: list[str]) -> None:
    started.set()
    try:
        while True:
            check_cancelled()
            time.sleep(0.002)
    except CancelledError:
        ended.append("cancelled")
        raise


def test_leaving_before_the_first_item_frees_the_slot(wait_until: WaitUntil) -> None:
    started, ended, slots = threading.Event(), list[str](), WorkerPool(1)

    def silent() -> Iterator[int]:
        computing(started, ended)
        yield 1

    async def leave() -> None:
        async with aclosing(slots.stream(silent)) as numbers:
            first = asyncio.ensure_future(anext(numbers))
            assert await asyncio.to_thread(started.wait, 60)
            first.cancel()
            await asyncio.wait({first})

    asyncio.run(leave())
    wait_until(lambda: slots.num_busy == 0)

    assert ended == ["cancelled"]


def test_nothing_of_a_stream_that_was_left_stays_in_memory_while_the_next_one_runs(wait_until: WaitUntil) -> None:
    class Cache:
        pass

    started, next_started, slots = threading.Event(), threading.Event(), WorkerPool(1)
    caches: list[weakref.ref[Cache]] = []

    def silent() -> Iterator[int]:
        cache = Cache()
        caches.append(weakref.ref(cache))
        computing(started, [])
        yield 1

    def following() -> Iterator[int]:
        computing(next_started, [])
        yield 1

    async def leave() -> None:
        async with aclosing(slots.stream(silent)) as numbers, aclosing(slots.stream(following)) as others:
            first, other = asyncio.ensure_future(anext(numbers)), asyncio.ensure_future(anext(others))
            assert await asyncio.to_thread(started.wait, 60)
            first.cancel()
            await asyncio.wait({first})
            assert await asyncio.to_thread(next_started.wait, 60)
            wait_until(lambda: caches[0]() is None)
            other.cancel()
            await asyncio.wait({other})

    asyncio.run(leave())


def test_who_is_cancelled_while_a_function_runs_frees_the_slot(wait_until: WaitUntil) -> None:
    started, ended, slots = threading.Event(), list[str](), WorkerPool(1)

    async def leave() -> None:
        result = asyncio.ensure_future(slots.call(computing, started, ended))
        assert await asyncio.to_thread(started.wait, 60)
        result.cancel()
        await asyncio.wait({result})

    asyncio.run(leave())
    wait_until(lambda: slots.num_busy == 0)

    assert ended == ["cancelled"]


def test_leaving_while_waiting_never_begins(wait_until: WaitUntil) -> None:
    started: list[str] = []
    slots = WorkerPool(1)

    def named(name: str) -> Iterator[int]:
        started.append(name)
        yield from endless()

    async def second_leaves() -> None:
        async with aclosing(slots.stream(lambda: named("first"))) as first:
            await anext(first)
            second = slots.stream(lambda: named("second"))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(second), 0.03)
            await second.aclose()

    asyncio.run(second_leaves())
    wait_until(lambda: slots.num_busy == 0)

    assert started == ["first"]


def test_an_error_reaches_who_waits() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    async def follow() -> None:
        async with aclosing(WorkerPool(1).stream(broken)) as numbers:
            async for _ in numbers:
                pass

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(follow())


def endless() -> Iterator[int]:
    while True:
        time.sleep(0.002)
        yield 1


@pytest.mark.parametrize(("number", "shown"), [(0, "taken."), (1, "and 1 more waits."), (2, "and 2 more wait.")])
def test_a_refusal_says_how_many_wait(number: int, shown: str) -> None:
    assert shown in str(RateLimitExceededError(number))


def test_no_more_wait_than_may_and_one_that_leaves_frees_a_place() -> None:
    async def crowd() -> None:
        slots = WorkerPool(1, max_waiting=2)
        async with aclosing(slots.stream(endless)) as first:
            await anext(first)
            waiting = [asyncio.ensure_future(collected(slots, 3)), asyncio.ensure_future(slots.call(int))]
            await asyncio.sleep(0)
            assert (slots.num_busy, slots.num_waiting) == (1, 2)
            with pytest.raises(RateLimitExceededError, match="2 more wait"):
                await slots.call(int)
            with pytest.raises(RateLimitExceededError):
                await anext(slots.stream(endless))
            waiting[1].cancel()
            await asyncio.wait(waiting[1:])
            assert slots.num_waiting == 1
            last = asyncio.ensure_future(slots.call(int, "7"))
        assert await asyncio.gather(waiting[0], last) == [[0, 1, 2], 7]

    asyncio.run(crowd())


def test_without_a_queue_nobody_waits() -> None:
    async def two() -> None:
        slots = WorkerPool(1, max_waiting=0)
        async with aclosing(slots.stream(endless)) as first:
            await anext(first)
            with pytest.raises(RateLimitExceededError):
                await slots.call(int)

    asyncio.run(two())


def test_a_queue_is_served_in_the_order_of_coming() -> None:
    served: list[int] = []

    async def crowd() -> None:
        slots = WorkerPool(1)
        async with aclosing(slots.stream(endless)) as first:
            await anext(first)
            waiting = [asyncio.ensure_future(slots.call(served.append, number)) for number in range(8)]
            await asyncio.sleep(0)
        await asyncio.gather(*waiting)

    asyncio.run(crowd())
    assert served == list(range(8))


def test_closing_refuses_those_that_wait_and_come_and_lets_those_that_run_go_on() -> None:
    async def closed() -> None:
        slots = WorkerPool(1)
        async with aclosing(slots.stream(endless)) as first:
            await anext(first)
            waiting = [asyncio.ensure_future(collected(slots, 3)), asyncio.ensure_future(slots.call(int))]
            await asyncio.sleep(0)
            slots.close()
            for one in [*waiting, slots.call(int), anext(slots.stream(endless))]:
                with pytest.raises(ServiceUnavailableError):
                    await one
            assert await anext(first) == 1
            assert (slots.num_busy, slots.num_waiting) == (1, 0)

    asyncio.run(closed())


def parts_that_meet(number: int, barrier: threading.Barrier) -> list[Callable[[], Iterator[int]]]:
    """Generators that yield their place when so many of them run."""

    def part(place: int) -> Iterator[int]:
        barrier.wait(60)
        yield place

    return [lambda place=place: part(place) for place in range(number)]  # type: ignore[misc]


async def all_of(slots: WorkerPool, *makes: Callable[[], Iterator[int]]) -> list[int]:
    async with aclosing(slots.stream(*makes)) as numbers:  # type: ignore[arg-type]
        return [number async for number in numbers]


def test_parts_of_a_request_run_side_by_side_in_idle_slots(wait_until: WaitUntil) -> None:
    slots = WorkerPool(5)
    numbers = asyncio.run(all_of(slots, *parts_that_meet(8, threading.Barrier(4))))
    assert sorted(numbers) == list(range(8))
    wait_until(lambda: slots.num_busy == 0)


def test_one_slot_takes_parts_in_their_order(wait_until: WaitUntil) -> None:
    slots = WorkerPool(1)
    assert asyncio.run(all_of(slots, *parts_that_meet(5, threading.Barrier(1)))) == list(range(5))
    wait_until(lambda: slots.num_busy == 0)


def test_who_waits_comes_before_further_parts_but_a_request_keeps_one_slot() -> None:
    started: list[str] = []
    go_on = threading.Event()

    def part(name: str) -> Iterator[int]:
        started.append(name)
        assert go_on.wait(60)
        yield 1

    async def two_requests() -> None:
        slots = WorkerPool(3, max_waiting=1)
        many = asyncio.create_task(all_of(slots, *(lambda name=name: part(name) for name in "abcd")))  # type: ignore[misc]
        await asyncio.sleep(0)
        single = asyncio.create_task(all_of(slots, lambda: part("single")))
        await asyncio.sleep(0)
        other = asyncio.create_task(all_of(slots, lambda: part("other")))
        await asyncio.sleep(0)
        assert (slots.num_busy, slots.num_waiting) == (3, 1)
        with pytest.raises(RateLimitExceededError):
            await all_of(slots, lambda: part("too many"))
        go_on.set()
        assert (await many, await single, await other) == ([1] * 4, [1], [1])

    asyncio.run(two_requests())
    assert set(started[:3]) == {"a", "b", "single"}
    assert "other" in started[3:6]


@pytest.mark.parametrize(("num_slots", "num_left"), [(2, 1), (4, 1), (16, 4)])
def test_requests_of_many_answers_leave_slots_to_those_that_come_later(num_slots: int, num_left: int) -> None:
    async def come_late() -> None:
        slots = WorkerPool(num_slots)
        async with aclosing(slots.stream(*[endless] * 256)) as greedy:
            assert await anext(greedy) == 1
            assert slots.num_busy == num_slots - num_left
            assert await asyncio.gather(*(collected(slots, 3) for _ in range(8))) == [[0, 1, 2]] * 8

    asyncio.run(come_late())


def test_an_error_of_one_part_ends_the_others(wait_until: WaitUntil) -> None:
    slots, started = WorkerPool(3), list[int]()

    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    def endless_part(place: int) -> Iterator[int]:
        started.append(place)
        return endless()

    makes = [broken, *(lambda place=number: endless_part(place) for number in range(4))]  # type: ignore[misc]
    with pytest.raises(ValueError, match="broken"):
        asyncio.run(all_of(slots, *makes))
    wait_until(lambda: slots.num_busy == 0)
    assert len(started) <= 2
