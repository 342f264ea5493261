"""What metering remembers: per run, which records it accepted and what they add up to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from uuid import UUID

from immutables import Map
from orca_runtime.tables import Table
from orca_schemas.positions import Position
from orca_schemas.values import AcceptedRecord, BucketTotal, Meter, MeterEnd
from pydantic import TypeAdapter

from orca_metering.numbers import Numbers

BUCKET_MS = 15 * 60 * 1000
"""Every time zone's days and months are whole numbers of 15-minute UTC buckets."""

DAY_MS = 24 * 60 * 60 * 1000
DAYS_KEPT = 38
"""Days of bucket totals kept per run: the 35 in which a record may still come, the two days that
this window cuts, and one for a broker clock that was set back."""


class MeterKey(NamedTuple):
    """One counter of one attempt. The attempt fixes the node; a restarted probe has a new epoch."""

    attempt: int
    meter: Meter
    epoch: int


class UsedKey(NamedTuple):
    """What is counted apart: a meter, and the model, the GPU type, or ``""`` for CPU."""

    meter: Meter
    model: str


class BucketKey(NamedTuple):
    """One UsedKey in one 15-minute UTC bucket."""

    meter: Meter
    model: str
    bucket_start_ms: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """Where placement put an attempt. ``fence`` is the position of its Placed."""

    node: str
    fence: str


@dataclass(frozen=True, slots=True)
class Run:
    """One run.

    ``promised`` holds the last number of each ended meter that is not complete yet: the run is
    complete when it is released and nothing is promised. ``last_ids`` are the ids of the records
    that were accepted last. ``used`` is of the run's whole life, in
    tokens or milli x milliseconds; ``days`` the same per bucket, by day, for the days in which a
    record may still come. ``mark`` is the own event that set the run's one timer.
    """

    namespace: str
    task_id: str
    mark: Position | None = None
    attempts: Table[int, Attempt] = field(default_factory=Map)
    accepted: Table[MeterKey, Numbers] = field(default_factory=Map)
    last_ids: Table[MeterKey, UUID] = field(default_factory=Map)
    promised: Table[MeterKey, int] = field(default_factory=Map)
    used: Table[UsedKey, int] = field(default_factory=Map)
    days: Table[int, Table[BucketKey, int]] = field(default_factory=Map)
    kept_from_ms: int = 0
    used_tokens: int = 0
    released_at_ms: int | None = None
    final_at_ms: int | None = None

    def numbers(self, key: MeterKey) -> Numbers:
        """The accepted numbers of one meter."""
        return self.accepted.get(key, EMPTY)

    def bucket_used(self, key: BucketKey) -> int:
        """The total of one bucket."""
        return self.days.get(key.bucket_start_ms // DAY_MS, Map()).get(key, 0)


@dataclass(frozen=True, slots=True)
class State:
    """Every run not yet forgotten, by run id."""

    runs: Table[UUID, Run] = field(default_factory=Map)


STATE = TypeAdapter(State)

EMPTY = Numbers()


def meter_key(record: AcceptedRecord) -> MeterKey:
    """The counter that numbered the record."""
    return MeterKey(record.attempt, record.meter, record.epoch)


def quantity(record: AcceptedRecord) -> int:
    """What a record adds up to: tokens, or milli-GPU (milli-CPU) milliseconds."""
    if record.classes is not None:
        return record.classes.total
    return record.milli * record.duration_ms


def bucket_key(record: AcceptedRecord) -> BucketKey:
    """The bucket of the record's event time; a record that spans buckets counts there whole."""
    return BucketKey(record.meter, record.model, record.at_ms - record.at_ms % BUCKET_MS)


def with_record(run: Run, record: AcceptedRecord) -> Run:
    """Return the run with the record's number accepted and its quantity added to ``used``."""
    key, used = meter_key(record), UsedKey(record.meter, record.model)
    numbers, promised, amount = run.numbers(key).add(record.number), run.promised, quantity(record)
    if key in promised and numbers.complete_to(promised[key]):
        promised = promised.delete(key)
    return replace(
        run,
        accepted=run.accepted.set(key, numbers),
        last_ids=run.last_ids.set(key, record.record_id),
        promised=promised,
        used=run.used.set(used, run.used.get(used, 0) + amount),
        used_tokens=run.used_tokens + (amount if record.meter is Meter.TOKENS else 0),
    )


def with_totals(run: Run, totals: Iterable[BucketTotal]) -> Run:
    """Return the run with these bucket totals (cumulative) in place of what stood there."""
    for total in totals:
        key = BucketKey(total.meter, total.model, total.bucket_start_ms)
        day = key.bucket_start_ms // DAY_MS
        if day not in run.days:
            run = _with_day(run, day)
        run = replace(run, days=run.days.set(day, run.days[day].set(key, total.used)))
    return run


def _with_day(run: Run, day: int) -> Run:
    """Begin a day, and let go of those in which no record can come any more."""
    oldest = max(run.kept_from_ms // DAY_MS, day + 1 - DAYS_KEPT)
    kept = {known: totals for known, totals in run.days.items() if known >= oldest}
    return replace(run, days=Map(kept | {day: Map()}), kept_from_ms=oldest * DAY_MS)


def with_end(run: Run, attempt: int, ends: Iterable[MeterEnd]) -> Run:
    """Return the run with an attempt's end: the numbers that it promises and that lack yet."""
    promised = run.promised
    for end in ends:
        key = MeterKey(attempt, end.meter, end.epoch)
        if not run.numbers(key).complete_to(end.last_number):
            promised = promised.set(key, max(end.last_number, promised.get(key, 0)))
    return replace(run, promised=promised)
