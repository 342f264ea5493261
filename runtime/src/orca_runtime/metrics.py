"""Prometheus metrics of a decider service."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_GROUP = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


class DeciderMetrics:
    """Counters and gauges of one decider, in a registry of its own."""

    def __init__(self, service: str) -> None:
        self.registry = CollectorRegistry()
        labels, registry = ("service",), self.registry
        self.inputs = Counter(
            "orca_inputs", "Inputs decided or skipped", ("service", "stream"), registry=registry
        )
        self.events = Counter(
            "orca_events", "Own events appended", ("service", "event"), registry=registry
        )
        self.append_seconds = Histogram(
            "orca_append_seconds", "Time of an append", labels, buckets=_SECONDS, registry=registry
        ).labels(service)
        self.decide_seconds = Histogram(
            "orca_decide_seconds",
            "Time to decide a group",
            labels,
            buckets=_SECONDS,
            registry=registry,
        ).labels(service)
        self.group = Histogram(
            "orca_append_events", "Events per append", labels, buckets=_GROUP, registry=registry
        ).labels(service)
        self.conflicts = Counter(
            "orca_append_conflicts", "Appends refused by the fence", labels, registry=registry
        ).labels(service)
        self.waiting = Gauge(
            "orca_inputs_waiting",
            "Inputs read, undecided",
            ("service", "stream"),
            registry=registry,
        )
        self.ready = Gauge(
            "orca_ready", "1 when caught up and fit to decide", labels, registry=registry
        ).labels(service)
        self.active = Gauge(
            "orca_active", "1 when this replica decides", labels, registry=registry
        ).labels(service)
        self.service = service

    def serve(self, port: int) -> None:
        """Serve the metrics on 127.0.0.1:``port``; 0 serves nothing."""
        if port:
            start_http_server(port, addr="127.0.0.1", registry=self.registry)
