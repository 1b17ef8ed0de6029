"""The connection to the API server that pages keep open: a new one for each request takes longer than most answers."""

from __future__ import annotations

from functools import lru_cache

from ui.client import Client
from workbench.settings import Settings


@lru_cache(maxsize=4)
def kept_client(settings: Settings) -> Client:
    """The client of these settings, shared by all threads of the studio."""
    return Client(settings)
