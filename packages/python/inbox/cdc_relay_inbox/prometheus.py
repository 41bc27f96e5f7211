"""The inbox's metrics with prometheus_client, by the names of the relay's dashboards and alerts."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric

from ._inbox import Inbox


class PrometheusMetrics:
    """Pass it as the inbox's metrics, and call watch with the inbox."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._registry = registry
        self._processed = Counter("consumer_events_processed", "Events decided", ["status", "type"], registry=registry)
        self._retried = Counter("consumer_retry_attempts", "Attempts after the first", ["type"], registry=registry)
        self._missing = Counter("consumer_handler_not_found", "Events of types without a handler", ["type"],
                                registry=registry)
        self._took = Histogram("consumer_process_duration_seconds", "Claim to commit", ["type"], registry=registry)
        self._inflight = Gauge("consumer_inflight", "Handlers that run", registry=registry)
        self._last = Gauge("consumer_last_processed_timestamp_seconds", "When an event was decided last", registry=registry)
        self._lag = Gauge("broker_consumer_lag", "Messages not yet decided", ["topic", "partition"], registry=registry)
        self._types: set[str] = set()

    def processed(self, status: str, type: str) -> None:
        self._processed.labels(status, type).inc()
        self._last.set_to_current_time()

    def retried(self, type: str) -> None:
        self._retried.labels(type).inc()

    def handler_not_found(self, type: str) -> None:
        if len(self._types) < 50:
            self._types.add(type)
        self._missing.labels(type if type in self._types else "unknown").inc()

    def took(self, type: str, seconds: float) -> None:
        self._took.labels(type).observe(seconds)

    def inflight(self, change: int) -> None:
        self._inflight.inc(change)

    def lag(self, topic: str, partition: int, messages: int) -> None:
        self._lag.labels(topic, partition).set(messages)

    def watch(self, inbox: Inbox) -> None:
        """Add the gauges that are read from the tables at each scrape."""
        self._registry.register(_Tables(inbox))  # type: ignore[arg-type]


class _Tables:
    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        try:
            parked, keys, dead = self._inbox.ledger.counts()
        except Exception:
            return  # unknown is absent
        yield GaugeMetricFamily("consumer_parked_events", "Events that wait for another attempt", value=parked)
        yield GaugeMetricFamily("consumer_parked_keys", "Keys with events that wait", value=keys)
        yield GaugeMetricFamily("consumer_dead_letters_open", "Dead letters not yet replayed or discarded", value=dead)
