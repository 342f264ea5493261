"""Trace contexts ride in events and are derived, so that a decision made again is the same span."""

from __future__ import annotations

from uuid import UUID

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from orca_runtime.tracing import Tracer, child_of, exporter_to

EVENT = UUID("00000000-0000-7000-8000-00000000000a")
PARENT = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"


class Kept(SpanExporter):
    """Keeps what is exported."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def export(self, spans: object) -> SpanExportResult:
        self.spans += spans  # type: ignore[operator]
        return SpanExportResult.SUCCESS


def test_an_event_stays_in_its_causes_trace_with_a_span_of_its_own() -> None:
    """Given a cause with a trace, then the event has its trace id and a derived span id."""
    found = child_of(PARENT, "run", EVENT)
    assert found.split("-")[1] == "a" * 32
    assert found.split("-")[2] != "b" * 16
    assert found == child_of(PARENT, "another seed", EVENT)


def test_without_a_cause_the_run_gives_the_trace() -> None:
    """Given no trace, then all events of one run share one, derived from the run."""
    other = UUID(int=EVENT.int + 1)
    one, two = child_of(None, "run", EVENT), child_of(None, "run", other)
    assert one.split("-")[1] == two.split("-")[1] != child_of(None, "run 2", EVENT).split("-")[1]
    assert one.split("-")[2] != two.split("-")[2]


def test_a_span_has_the_ids_that_its_event_carries() -> None:
    """Given an event with a context, then the exported span has its ids, parent and times."""
    kept = Kept()
    tracer = Tracer("admission", kept)
    own = child_of(PARENT, "run", EVENT)
    tracer.event("admission QuotaReserved", own, PARENT, 1000, 2000)
    tracer.event("no context", None, None, 1, 2)
    tracer.close()
    (span,) = kept.spans
    assert f"{span.context.trace_id:032x}" == own.split("-")[1]
    assert f"{span.context.span_id:016x}" == own.split("-")[2]
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == "b" * 16
    assert (span.start_time, span.end_time) == (1000, 2000)


def test_without_an_exporter_nothing_is_done() -> None:
    """Given no endpoint, then there is no exporter and events cost nothing."""
    assert exporter_to(None) is None
    assert exporter_to("") is None
    tracer = Tracer("admission", None)
    tracer.event("x", PARENT, None, 1, 2)
    tracer.close()
