"""Whoever sends many wrong tokens tries one at a time, whatever carries them, and keeps nobody else out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.ui.conftest import in_loop
from ui.serving.attempts import (
    FAILURE_SECONDS,
    KNOWN_SECONDS,
    MAX_CLIENTS,
    MAX_FAILURES,
    MAX_WAITING,
    Attempts,
    Failures,
    TooManyTriesError,
)
from workbench.access.actor import THE_OWNER, Actor

HERE, THERE = "10.0.0.1", "10.0.0.2"


class Clock:
    """A clock that the test moves."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Door:
    """Tries of tokens, of which `right` is the owner's; a pause lasts until the test ends it."""

    def __init__(self) -> None:
        self.num_pauses, self.end, self.clock, self.tried = 0, asyncio.Event(), Clock(), list[bytes]()
        self.attempts = Attempts(self._find, self._pause, self.clock)

    def _find(self, token: bytes) -> Actor | None:
        self.tried.append(token)
        return THE_OWNER if token == b"right" else None

    async def _pause(self, _: float) -> None:
        self.num_pauses += 1
        await self.end.wait()
        self.end.clear()

    async def fail(self, send: str, times: int = MAX_FAILURES) -> None:
        for _ in range(times):
            await getattr(self.attempts, send)(HERE, b"wrong")


both_senders = pytest.mark.parametrize("send", ["in_form", "in_header"])


async def settle(tasks: list[asyncio.Task[Any]]) -> list[bool]:
    """Which of them are done, when all have gone as far as they can."""
    for _ in range(50):
        await asyncio.sleep(0)
    return [task.done() for task in tasks]


@both_senders
@in_loop
async def test_slow_tries_of_one_address_run_one_after_another_and_few_of_them_wait(send: str) -> None:
    door = Door()
    await door.fail(send)
    tasks = [asyncio.create_task(getattr(door.attempts, send)(HERE, b"guess")) for _ in range(100)]
    assert sum(await settle(tasks)) == 100 - MAX_WAITING
    assert (door.num_pauses, len(door.tried)) == (1, MAX_FAILURES)  # no guess yet: refused, or waiting its turn
    for number in range(MAX_WAITING):
        assert door.num_pauses == number + 1
        door.end.set()
        await asyncio.wait([task for task in tasks if not task.done()], return_when="FIRST_COMPLETED")
        await settle(tasks)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(isinstance(result, TooManyTriesError) for result in results) == 100 - MAX_WAITING
    assert not door.attempts._lines


@both_senders
@in_loop
async def test_tries_that_came_before_the_first_failure_are_not_all_made(send: str) -> None:
    door = Door()
    tasks = [asyncio.create_task(getattr(door.attempts, send)(HERE, b"guess")) for _ in range(100)]
    while sum(await settle(tasks)) < 100 - MAX_WAITING:
        await asyncio.wait([task for task in tasks if not task.done()], return_when="FIRST_COMPLETED")
    assert len(door.tried) == MAX_FAILURES
    for task in tasks:
        task.cancel()


@both_senders
@in_loop
async def test_wrong_tokens_of_one_address_do_not_slow_another(send: str) -> None:
    door = Door()
    await door.fail(send)
    assert await getattr(door.attempts, send)(THERE, b"right")
    assert door.num_pauses == 0


@in_loop
async def test_wrong_tokens_of_headers_and_of_forms_count_together() -> None:
    door = Door()
    await door.fail("in_header", MAX_FAILURES - 1)
    await door.fail("in_form", 1)
    door.end.set()
    assert await door.attempts.in_form(HERE, b"right") == (THE_OWNER, True)
    assert door.num_pauses == 1


@in_loop
async def test_a_right_token_in_a_header_is_not_slowed_at_an_address_that_sent_one_lately() -> None:
    door = Door()
    assert await door.attempts.in_header(HERE, b"right")
    await door.fail("in_header", 2 * MAX_FAILURES)
    assert await door.attempts.in_header(HERE, b"right")
    assert door.num_pauses == 0
    door.clock.now += KNOWN_SECONDS
    await door.fail("in_header")
    door.end.set()
    assert await door.attempts.in_header(HERE, b"right")
    assert door.num_pauses == 1


@in_loop
async def test_many_right_tokens_at_once_are_no_failures() -> None:
    door = Door()
    together = [door.attempts.in_header(HERE, b"right") for _ in range(50)]
    assert await asyncio.gather(*together) == [THE_OWNER] * 50
    assert door.num_pauses == 0


def test_wrong_tokens_of_one_client_are_too_many_after_a_few() -> None:
    clock = Clock()
    failures = Failures(clock)
    for _ in range(MAX_FAILURES):
        assert not failures.are_too_many("10.0.0.1")
        failures.add("10.0.0.1")
    assert failures.are_too_many("10.0.0.1")
    assert not failures.are_too_many("10.0.0.2")
    clock.now += FAILURE_SECONDS
    assert not failures.are_too_many("10.0.0.1")


def test_addresses_without_end_fill_no_memory() -> None:
    failures = Failures(Clock())
    for number in range(MAX_CLIENTS + 10):
        failures.add(str(number))
    assert len(failures._times) == MAX_CLIENTS
