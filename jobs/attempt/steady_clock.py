"""A clock that nobody sets, for the lengths of leases on this machine."""

from __future__ import annotations

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # macOS has only the second, which does the same there


def steady_seconds() -> float:
    """Seconds since the machine started, those included during which it slept."""
    return time.clock_gettime(_CLOCK)
