"""What the API server counts for Prometheus: requests, tokens, and the time that both take."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

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
