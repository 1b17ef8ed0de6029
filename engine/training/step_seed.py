"""The seed of one training step: the same on every Python, and the same as in checkpoints of older versions."""

from __future__ import annotations

_MASK = (1 << 64) - 1
_PRIME_1, _PRIME_2, _PRIME_5 = 11400714785074694791, 14029467366897019727, 2870177450012600261
_LENGTH_SALT = 3527539
_MODULUS = (1 << 61) - 1


def step_seed(seed: int, step: int) -> int:
    """A signed 64-bit seed for what layers draw at random in this step.

    This is what `hash((seed, step))` gives in 64-bit CPython (xxHash of two lanes). It is written out because Python
    promises nothing about that value, and kept because a resumed training must draw what an uninterrupted one draws.
    """
    accumulated = _PRIME_5
    for number in (seed, step):
        accumulated = (accumulated + _lane(number) * _PRIME_2) & _MASK
        accumulated = ((accumulated << 31) | (accumulated >> 33)) & _MASK
        accumulated = (accumulated * _PRIME_1) & _MASK
    accumulated = (accumulated + (2 ^ _PRIME_5 ^ _LENGTH_SALT)) & _MASK
    if accumulated == _MASK:  # -1 is no hash
        return 1546275796
    return accumulated - (1 << 64) if accumulated >> 63 else accumulated


def _lane(number: int) -> int:
    """The number's residue modulo 2^61 - 1 with its sign, where -1 becomes -2."""
    residue = abs(number) % _MODULUS * (-1 if number < 0 else 1)
    return (-2 if residue == -1 else residue) & _MASK
