"""Traces whose context rides in the events: one trace from TaskSubmitted to the charge.

Span ids are derived from event ids, so a decision made again after a crash is the same span.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import blake2b
from uuid import UUID

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator

_SAMPLED = "01"
_chosen: ContextVar[tuple[int, int] | None] = ContextVar("chosen", default=None)


def child_of(traceparent: str | None, seed: str, event_id: UUID) -> str:
    """The W3C traceparent of an event: its cause's trace, or one derived from ``seed``."""
    trace_id = traceparent.split("-")[1] if traceparent else _hash(seed, 16)
    return f"00-{trace_id}-{_hash(str(event_id), 8)}-{_SAMPLED}"


def _hash(seed: str, size: int) -> str:
    return blake2b(seed.encode(), digest_size=size).hexdigest()


class _DerivedIds(IdGenerator):
    """Gives the span the ids that its event carries."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()

    def generate_span_id(self) -> int:
        chosen = _chosen.get()
        return chosen[1] if chosen else self._random.generate_span_id()

    def generate_trace_id(self) -> int:
        chosen = _chosen.get()
        return chosen[0] if chosen else self._random.generate_trace_id()


@contextmanager
def _ids(trace_id: int, span_id: int) -> Iterator[None]:
    token = _chosen.set((trace_id, span_id))
    try:
        yield
    finally:
        _chosen.reset(token)


class Tracer:
    """Exports one span per event; does nothing without an exporter."""

    def __init__(self, service: str, exporter: SpanExporter | None) -> None:
        self._provider: TracerProvider | None = None
        if exporter is not None:
            self._provider = TracerProvider(
                resource=Resource.create({"service.name": f"orca-{service}"}),
                id_generator=_DerivedIds(),
            )
            self._provider.add_span_processor(BatchSpanProcessor(exporter))
            self._tracer = self._provider.get_tracer("orca")

    def event(
        self, name: str, own: str | None, parent: str | None, start_ns: int, end_ns: int
    ) -> None:
        """Export the span of one event; times are Unix ns, contexts W3C traceparents."""
        if self._provider is None or own is None:
            return
        _, trace_hex, span_hex, _ = own.split("-")
        with _ids(int(trace_hex, 16), int(span_hex, 16)):
            span = self._tracer.start_span(name, context=_parent(parent), start_time=start_ns)
            span.end(end_time=end_ns)

    def close(self) -> None:
        """Flush what is waiting."""
        if self._provider is not None:
            self._provider.shutdown()


def _parent(traceparent: str | None) -> Context | None:
    if traceparent is None:
        return None
    _, trace_hex, span_hex, _ = traceparent.split("-")
    context = trace.SpanContext(
        int(trace_hex, 16), int(span_hex, 16), is_remote=True, trace_flags=trace.TraceFlags(1)
    )
    return trace.set_span_in_context(trace.NonRecordingSpan(context))


def exporter_to(endpoint: str | None) -> SpanExporter | None:
    """An OTLP/HTTP exporter to ``endpoint`` (``http://host:4318``), or none."""
    if not endpoint:
        return None
    return OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")
