"""Calls that are repeated while the registry does not respond."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.orm import Session

from workbench.errors import DiskFullError, RegistryUnavailableError
from workbench.registry import database
from workbench.settings import Settings

RETRY_SECONDS = 0.5
T = TypeVar("T")


def with_retries(settings: Settings, write: Callable[[Session], T]) -> T:
    """Runs one transaction; retries while the registry does not respond, up to the length of a lease."""

    def run() -> T:
        with database.transaction(settings) as session:
            return write(session)

    return retried(settings, run)


def retried(settings: Settings, call: Callable[[], T]) -> T:
    """The result of a call, which is repeated while the registry does not respond, up to the length of a lease."""
    until = time.monotonic() + settings.lease_seconds
    while True:
        try:
            return call()
        except (RegistryUnavailableError, DiskFullError):
            if time.monotonic() >= until:
                raise
            time.sleep(RETRY_SECONDS)
