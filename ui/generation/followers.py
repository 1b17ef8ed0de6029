"""Places for clients that follow a job until it ends: a bounded number, and none once the server stops.

All of it happens in the server's event loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ui.errors import RateLimitExceededError, ServiceUnavailableError

MOST_FOLLOWERS = 32  # each reads the registry twice a second


class Followers:
    """Counts who follows. Raises RateLimitExceededError when all are taken, ServiceUnavailableError once closed."""

    def __init__(self, num_places: int = MOST_FOLLOWERS) -> None:
        self._num_free, self._closed = num_places, False

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place as long as the block lasts."""
        self.require_open()
        if not self._num_free:
            raise RateLimitExceededError(0)
        self._num_free -= 1
        try:
            yield
        finally:
            self._num_free += 1

    def require_open(self) -> None:
        """Raises ServiceUnavailableError when the server stops."""
        if self._closed:
            raise ServiceUnavailableError

    def close(self) -> None:
        """Whoever follows ends at the next look."""
        self._closed = True
