"""Caches of running streams stay within the bytes that they may take."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

from engine.inference.cache_bytes import CacheBytes, bytes_per_position
from engine.inference.cancellation import CancelledError, cancel_scope
from engine.models.families import fresh_model
from tests.engine.conftest import VOCAB, small_shape


def test_who_does_not_fit_waits_until_another_has_left() -> None:
    cache, inside, leave, order = CacheBytes(10), Event(), Event(), list[str]()

    def first() -> None:
        with cache.reserved(6):
            inside.set()
            assert leave.wait(60)
            order.append("first")

    def second() -> None:
        with cache.reserved(5):
            order.append("second")

    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(first)
        assert inside.wait(60)
        other = threads.submit(second)
        assert cache.num_reserved == 6
        leave.set()
        one.result()
        other.result()
    assert order == ["first", "second"]
    assert cache.num_reserved == 0


def test_one_stream_always_fits() -> None:
    cache = CacheBytes(1)
    with cache.reserved(100):
        assert cache.num_reserved == 100


def test_what_is_idle_goes_for_a_stream_before_it_waits() -> None:
    idle = [4, 3]

    def shrink(wanted: int) -> int:
        while idle and sum(idle) + wanted > 10:
            idle.pop()
        return sum(idle)

    cache = CacheBytes(10, shrink)
    with cache.reserved(3):
        assert idle == [4, 3]
        with cache.reserved(2):
            assert idle == [4]


def test_who_waits_looks_again_when_something_else_is_idle() -> None:
    in_use, waits, inside = [8], Event(), Event()

    def shrink(_: int) -> int:
        waits.set()
        return sum(in_use)

    cache = CacheBytes(10, shrink)

    def second() -> None:
        with cache.reserved(2):
            inside.set()

    with ThreadPoolExecutor(1) as threads, cache.reserved(1):
        waits.clear()
        other = threads.submit(second)
        assert waits.wait(60)
        assert not inside.is_set()
        in_use.clear()
        cache.retry()
        other.result(30)
    assert inside.is_set()


def test_bytes_are_those_of_a_cache_that_was_filled() -> None:
    import torch
    from transformers import DynamicCache

    lm, cache = fresh_model(small_shape(), VOCAB), DynamicCache()
    lm(input_ids=torch.ones(1, 5, dtype=torch.long), past_key_values=cache, use_cache=True)
    filled = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert filled == 5 * bytes_per_position(lm.config)


def test_a_stream_that_nobody_wants_any_more_leaves_its_place_to_the_next() -> None:
    cache, gave_up, waits = CacheBytes(10), Event(), Event()

    def unwanted() -> None:
        def is_cancelled() -> bool:
            waits.set()
            return gave_up.is_set()

        with cancel_scope(is_cancelled), cache.reserved(8):
            raise AssertionError("it does not fit")

    with ThreadPoolExecutor(1) as threads, cache.reserved(6):
        stream = threads.submit(unwanted)
        assert waits.wait(60)
        gave_up.set()
        assert isinstance(stream.exception(60), CancelledError)
        with cache.reserved(4):  # would wait behind it
            assert cache.num_reserved == 10
    assert cache.num_reserved == 0
