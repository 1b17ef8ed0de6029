"""Seeds of steps: pinned numbers, so that a resumed training draws the same on every Python."""

from __future__ import annotations

import sys

import pytest

from engine.training.data import step_seed


@pytest.mark.parametrize(
    ("seed", "step", "expected"),
    [(0, 0, -8458139203682520985), (17, 300, -7091718413813541412), (-1, 1, 9083154820904886697)],
)
def test_the_seed_of_a_step_is_pinned(seed: int, step: int, expected: int) -> None:
    assert step_seed(seed, step) == expected


@pytest.mark.skipif(sys.implementation.name != "cpython" or sys.maxsize < 2**62, reason="the hash of 64-bit CPython")
def test_seeds_are_those_of_older_checkpoints() -> None:
    pairs = [(seed, step) for seed in (-(2**63), -2, -1, 0, 1, 7, 2**61 - 1, 2**64 - 1) for step in range(50)]
    assert [step_seed(*pair) for pair in pairs] == [hash(pair) for pair in pairs]
