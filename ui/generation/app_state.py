"""The app state that every route and the playground share: settings, weights and places; nothing of a request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Semaphore
from typing import Any, Concatenate, ParamSpec, TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram

from ui.errors import RateLimitExceededError
from ui.generation.model_host import ModelHost
from ui.generation.worker_pool import WorkerPool
from workbench.access.actor import Role
from workbench.registry.database import reading, transaction
from workbench.settings import Settings

P = ParamSpec("P")
T = TypeVar("T")
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Metrics:
    """Counters and histograms of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter = partial(Counter, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry, buckets=SECONDS)
        self.requests = counter("workbench_requests", "Requests by route and HTTP status.", ["route", "status"])
        self.request_seconds = histogram("workbench_request_seconds", "Seconds until an answer was sent.", ["route"])
        self.first_token_seconds = histogram(
            "workbench_first_token_seconds", "Seconds from a request to its first text, with its wait."
        )
        self.between_tokens_seconds = histogram(
            "workbench_between_tokens_seconds",
            "Seconds between two tokens of an answer.",
            buckets=(0.001, 0.0025, 0.005, *SECONDS),
        )
        self.prompt_tokens = counter("workbench_prompt_tokens", "Tokens of answered prompts.")
        self.generated_tokens = counter("workbench_generated_tokens", "Generated tokens.")
        self.unfinished = counter("workbench_unfinished_answers", "Answers that were cut or that failed.")


MOST_FOLLOWERS = 32  # each reads the registry twice a second


@dataclass(frozen=True)
class AppState:
    """Settings and weights of one server, slots of generations and of clients that follow a job."""

    settings: Settings
    generations: ModelHost
    slots: WorkerPool
    followers: Semaphore = field(default_factory=partial(Semaphore, MOST_FOLLOWERS))
    metrics: Metrics = field(default_factory=Metrics)

    def read(self, service: Callable[Concatenate[Any, P], T], *arguments: P.args, **options: P.kwargs) -> T:
        """The answer of a service whose first argument is a session that reads the registry."""
        with reading(self.settings) as session:
            return service(session, *arguments, **options)

    def write(self, service: Callable[Concatenate[Any, P], T], *arguments: P.args, **options: P.kwargs) -> T:
        """The answer of a service that changes the registry, in one transaction."""
        with transaction(self.settings) as session:
            return service(session, *arguments, **options)

    def write_by_viewer(self, service: Callable[Concatenate[Any, P], T], *arguments: P.args, **options: P.kwargs) -> T:
        """The same for a change that every user may make."""
        with transaction(self.settings, Role.VIEWER) as session:
            return service(session, *arguments, **options)

    @contextmanager
    def follower_slot(self) -> Iterator[None]:
        """A slot of a client that follows a job. Raises RateLimitExceededError when all are taken."""
        self.slots.require_open()
        if not self.followers.acquire(blocking=False):
            raise RateLimitExceededError(0)
        try:
            yield
        finally:
            self.followers.release()

    def close(self) -> None:
        """Refuses what waits and what is new; generations that run continue, and whoever follows a job is let go."""
        self.slots.close()
