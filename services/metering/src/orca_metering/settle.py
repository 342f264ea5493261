"""Whether a usage record is believed, and what accepting it changes."""

from __future__ import annotations

from itertools import islice
from uuid import RFC_4122, UUID

from orca_schemas.events.metering import UsageSettled
from orca_schemas.events.usage import GpuUsed, TokensUsed
from orca_schemas.identifiers import id_time_ms
from orca_schemas.units import MAX_AMOUNT
from orca_schemas.values import AcceptedRecord, BucketTotal, Meter, MissingRange

from orca_metering.commands import AcceptRecord, Usage
from orca_metering.numbers import MAX_GAPS
from orca_metering.state import (
    DAY_MS,
    Run,
    UsedKey,
    bucket_key,
    meter_key,
    quantity,
    with_record,
)

MAX_LATE_MS = 35 * DAY_MS
"""A record older than this against the broker's clock could fall into a closed month."""

MAX_EARLY_MS = 5 * 60 * 1000
"""How far a node's clock may run ahead of the broker's."""

MAX_MODELS = 1000
"""Models and GPU types counted apart per run; model names are the tenant's to choose."""

MAX_METERS = 10_000
"""Counters (attempt, meter, probe epoch) kept per run: a probe that restarts every minute for a
week stays below it."""

MAX_MISSING = 200
"""Ranges that one event names, so that it stays far below the size of an event."""

UUID_VERSION = 7


def identity_doubt(run: Run | None, command: AcceptRecord) -> str | None:
    """Why this probe does not speak for this attempt; None if it does."""
    usage = command.usage
    if run is None:
        return f"run {usage.run_id} has no attempt, or was final 36 days ago"
    if (command.namespace, command.task_id) != (run.namespace, run.task_id):
        return f"run {usage.run_id} is of task {run.namespace}/{run.task_id}"
    attempt = run.attempts.get(usage.attempt)
    if attempt is None:
        return f"attempt {usage.attempt} was never placed"
    if command.party != attempt.node:
        return f"attempt {usage.attempt} is on node {attempt.node}, not on {command.party}"
    if usage.fence != attempt.fence:
        return f"attempt {usage.attempt} has fence {attempt.fence}, not {usage.fence}"
    return None


def accepted(usage: Usage, node: str) -> AcceptedRecord:
    """The permanent form of what a probe on ``node`` reported; ``at_ms`` is its id's time."""
    meter, model, classes, milli, duration_ms = Meter.TOKENS, "", None, 0, 0
    if isinstance(usage, TokensUsed):
        model, classes = usage.model, usage.classes
    elif isinstance(usage, GpuUsed):
        meter, model = Meter.GPU, usage.gpu_type
        milli, duration_ms = usage.gpu_milli, usage.duration_ms
    else:
        meter, milli, duration_ms = Meter.CPU, usage.cpu_milli, usage.duration_ms
    return AcceptedRecord(
        record_id=usage.record_id,
        meter=meter,
        attempt=usage.attempt,
        node=node,
        epoch=usage.epoch,
        number=usage.number,
        model=model,
        classes=classes,
        milli=milli,
        duration_ms=duration_ms,
        at_ms=id_time_ms(usage.record_id),
    )


def is_repeat(run: Run, record: AcceptedRecord) -> bool:
    """Whether this number of this run, attempt, node, meter and epoch was accepted before."""
    return record.number in run.numbers(meter_key(record))


def id_doubt(run: Run, record: AcceptedRecord) -> str | None:
    """Why the record's id is none; None if it is.

    Tables are keyed by it, so a probe that says the same id each time would be charged once.
    """
    if not is_uuid7(record.record_id):
        return f"record id {record.record_id} is no UUIDv7, so it carries no event time"
    if run.last_ids.get(meter_key(record)) == record.record_id:
        return f"record id {record.record_id} is that of the record before it"
    return None


def time_doubt(run: Run, record: AcceptedRecord, received_at_ms: int) -> str | None:
    """Why the record's own time cannot be right; None if it can."""
    late_ms, early_ms = received_at_ms - record.at_ms, record.at_ms - received_at_ms
    if late_ms > MAX_LATE_MS:
        return f"event time is {late_ms} ms before its arrival; at most {MAX_LATE_MS} are taken"
    if early_ms > MAX_EARLY_MS:
        return f"event time is {early_ms} ms after its arrival; at most {MAX_EARLY_MS} are taken"
    # A clock that stepped forward makes its step a time that was held.
    if early_ms + record.duration_ms > MAX_EARLY_MS:
        early_ms += record.duration_ms
        return f"its time ends {early_ms} ms after its arrival; at most {MAX_EARLY_MS} are taken"
    if record.at_ms < run.kept_from_ms:
        return f"totals before {run.kept_from_ms} (Unix ms) are closed"
    return None


def is_uuid7(identifier: UUID) -> bool:
    """Whether the id is a UUIDv7 (RFC 9562), whose first 48 bits are Unix milliseconds."""
    return identifier.version == UUID_VERSION and identifier.variant == RFC_4122


def size_doubt(run: Run, record: AcceptedRecord) -> str | None:
    """Why the record would burst a bound; None if it fits."""
    key, used = meter_key(record), UsedKey(record.meter, record.model)
    so_far = run.used_tokens if record.meter is Meter.TOKENS else run.used.get(used, 0)
    if record.duration_ms > MAX_LATE_MS:
        return f"duration of {record.duration_ms} ms is over {MAX_LATE_MS}"
    if so_far + quantity(record) > MAX_AMOUNT:
        return f"{quantity(record)} more would pass {MAX_AMOUNT}, the largest amount"
    if used not in run.used and len(run.used) >= MAX_MODELS:
        return f"the run has {MAX_MODELS} models already"
    if key not in run.accepted and len(run.accepted) >= MAX_METERS:
        return f"the run has {MAX_METERS} meters already"
    if len(run.numbers(key).add(record.number).ahead) > MAX_GAPS:
        return f"number {record.number} would open gap {MAX_GAPS + 1} of its meter"
    return None


def settlement(run_id: UUID, run: Run, record: AcceptedRecord) -> UsageSettled:
    """What accepting the record says: it, the one bucket it changed, and whether that was all."""
    after, bucket = with_record(run, record), bucket_key(record)
    total = BucketTotal(
        meter=record.meter,
        model=record.model,
        bucket_start_ms=bucket.bucket_start_ms,
        used=run.bucket_used(bucket) + quantity(record),
    )
    return UsageSettled(
        run_id=run_id,
        records=(record,),
        totals=(total,),
        used_tokens=after.used_tokens,
        final=is_final(after),
        missing=missing(after) if is_final(after) else (),
    )


def closing(run_id: UUID, run: Run) -> UsageSettled:
    """What ends the settling of a run: no record, final, and what never came."""
    return UsageSettled(
        run_id=run_id,
        records=(),
        totals=(),
        used_tokens=run.used_tokens,
        final=True,
        missing=missing(run),
    )


def is_final(run: Run) -> bool:
    """Whether no more is expected; once final, always final."""
    return run.final_at_ms is not None or (run.released_at_ms is not None and not run.promised)


def missing(run: Run) -> tuple[MissingRange, ...]:
    """What was promised and never came, by attempt, meter and epoch; the first MAX_MISSING."""
    ranges = (
        MissingRange(meter=key.meter, attempt=key.attempt, epoch=key.epoch, first=first, last=last)
        for key, promised in sorted(run.promised.items())
        for first, last in run.numbers(key).missing(promised)
    )
    return tuple(islice(ranges, MAX_MISSING))
