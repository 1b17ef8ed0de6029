"""The app state that every route and the playground share: settings, weights and places; nothing of a request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ui.errors import RateLimitExceededError, ServiceUnavailableError
from ui.generation.model_host import ModelHost
from ui.generation.worker_pool import WorkerPool
from workbench.access.actor import Role
from workbench.registry.database import reading, transaction
from workbench.settings import Settings

P = ParamSpec("P")
T = TypeVar("T")
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
Reading = Callable[[], float]


class Metrics:
    """Counters and histograms of one server, and gauges that are read when somebody asks."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self.requests = Counter(
            "workbench_requests", "Requests by route and HTTP status.", ["route", "status"], registry=registry
        )
        self.request_seconds = Histogram(
            "workbench_request_seconds",
            "Seconds until an answer was sent.",
            ["route"],
            buckets=SECONDS,
            registry=registry,
        )
        self.first_token_seconds = Histogram(
            "workbench_first_token_seconds",
            "Seconds from a request to its first text, with its wait.",
            buckets=SECONDS,
            registry=registry,
        )
        self.between_tokens_seconds = Histogram(
            "workbench_between_tokens_seconds",
            "Seconds between two tokens of an answer.",
            buckets=(0.001, 0.0025, 0.005, *SECONDS),
            registry=registry,
        )
        self.prompt_tokens = Counter("workbench_prompt_tokens", "Tokens of answered prompts.", registry=registry)
        self.generated_tokens = Counter("workbench_generated_tokens", "Generated tokens.", registry=registry)
        self.unfinished = Counter(
            "workbench_unfinished_answers", "Answers that were cut or that failed.", registry=registry
        )

    def watch(self, gauges: dict[str, tuple[str, Reading]], counters: dict[str, tuple[str, Reading]]) -> None:
        """Reads these numbers, by name with their sentences, whenever metrics are asked for."""
        self._registry.register(_Watched(gauges, counters))

    def text(self) -> bytes:
        """All numbers in the text form of Prometheus."""
        return generate_latest(self._registry)


class _Watched(Collector):
    """Numbers that live elsewhere."""

    def __init__(self, gauges: dict[str, tuple[str, Reading]], counters: dict[str, tuple[str, Reading]]) -> None:
        self._gauges, self._counters = gauges, counters

    def collect(self) -> Iterator[Metric]:
        for name, (sentence, read) in self._gauges.items():
            yield GaugeMetricFamily(name, sentence, value=read())
        for name, (sentence, read) in self._counters.items():
            yield CounterMetricFamily(name, sentence, value=read())


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


@dataclass(frozen=True)
class AppState:
    """Settings and weights of one server, slots of generations and places of followers."""

    settings: Settings
    generations: ModelHost
    slots: WorkerPool
    followers: Followers = field(default_factory=Followers)
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

    def close(self) -> None:
        """Refuses what waits and what is new; generations that run continue, and whoever follows a job is let go."""
        self.slots.close()
        self.followers.close()
