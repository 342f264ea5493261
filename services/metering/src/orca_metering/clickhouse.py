"""Metering's tables in ClickHouse: each accepted record, and each event of the log."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from orca_runtime.clickhouse import ClickHouseSink, Row, TableWriter, statements
from orca_runtime.recorded import Recorded
from orca_schemas.events.client import TaskSubmitted
from orca_schemas.events.metering import UsageSettled
from orca_schemas.identifiers import run_id
from orca_schemas.subjects import Stream
from orca_schemas.values import AcceptedRecord, TokenClasses

USAGE_STREAMS = (Stream.METERING,)
TASK_STREAMS = (
    Stream.CLIENT, Stream.ADMISSION, Stream.PLACEMENT, Stream.NODE, Stream.METERING, Stream.BILLING,
)  # fmt: skip

NO_TOKENS = TokenClasses()


def usage_sink(url: str) -> ClickHouseSink:
    """The sink of ``usage_events``, over USAGE_STREAMS; ``url`` as connect takes it."""
    return ClickHouseSink(url, "metering-usage", statements("orca_metering"), [USAGE_EVENTS])


def task_sink(url: str) -> ClickHouseSink:
    """The sink of ``task_events``, over TASK_STREAMS; ``url`` as connect takes it."""
    return ClickHouseSink(url, "metering-tasks", statements("orca_metering"), [TASK_EVENTS])


def usage_rows(event: Recorded) -> Iterable[Row]:
    """One row per record that the event says is accepted."""
    settled = event.data
    if not isinstance(settled, UsageSettled):
        return ()
    about, (_, epoch, sequence) = event.subject, event.position
    head = (about.namespace, UUID(about.id), settled.run_id)
    return ((*head, *_measures(record), epoch, sequence) for record in settled.records)


def _measures(record: AcceptedRecord) -> Row:
    tokens = (amount for _, amount in (record.classes or NO_TOKENS).items())
    return (
        record.record_id,
        record.meter.value,
        record.attempt,
        record.node,
        record.epoch,
        record.number,
        record.model,
        *tokens,
        record.milli,
        record.duration_ms,
    )


USAGE_EVENTS = TableWriter(
    "usage_events",
    (
        "namespace", "task_id", "run_id", "record_id", "meter", "attempt", "node", "probe_epoch",
        "number", "model", *TokenClasses.model_fields, "milli", "duration_ms", "stream_epoch",
        "stream_sequence",
    ),
    usage_rows,
)  # fmt: skip


def task_rows(event: Recorded) -> Iterable[Row]:
    """One row per event. ``event_time`` is the broker's time of it."""
    about, (stream, epoch, sequence) = event.subject, event.position
    yield (
        event.time_ms,
        about.namespace,
        about.kind.value,
        about.id,
        _run_of(event),
        about.event,
        about.party,
        event.cause or "",
        event.data.model_dump_json(),
        stream,
        epoch,
        sequence,
    )


def _run_of(event: Recorded) -> str:
    """The run that the event is about; a submission begins the one that its position names."""
    if isinstance(event.data, TaskSubmitted):
        return str(run_id(event.position, event.time_ms))
    known = getattr(event.data, "run_id", None) or event.run
    return str(known or "")


TASK_EVENTS = TableWriter(
    "task_events",
    (
        "event_time", "namespace", "kind", "id", "run_id", "event", "party", "cause", "data",
        "stream", "stream_epoch", "stream_sequence",
    ),
    task_rows,
)  # fmt: skip
