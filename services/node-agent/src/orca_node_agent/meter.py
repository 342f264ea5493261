"""GPU and CPU time of an attempt: contiguous intervals, no overlap, no record of nothing."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from orca_schemas.events.usage import CpuUsed, GpuUsed
from orca_schemas.identifiers import derived_id
from orca_schemas.values import Meter, MeterEnd

from orca_node_agent.records import AttemptRecord, MeterState, Phase

MILLI = 1000


class Interval(NamedTuple):
    """Time held, on the node's clock in Unix milliseconds."""

    from_ms: int
    duration_ms: int

    @property
    def through_ms(self) -> int:
        """Where the next interval begins."""
        return self.from_ms + self.duration_ms


class Numbering(NamedTuple):
    """Whose record it is, besides the attempt: the node and the epoch of its spool."""

    node: str
    epoch: int


def next_interval(through_ms: int, now_ms: int) -> Interval | None:
    """The time since ``through_ms``; None while the clock does not stand behind it.

    A clock that stepped back is waited for: time is never counted twice.
    """
    if now_ms <= through_ms:
        return None
    return Interval(through_ms, now_ms - through_ms)


def is_due(record: AttemptRecord, now_ms: int) -> bool:
    """Whether a running attempt's report interval is over."""
    through_ms = record.progress.reported_through_ms
    if record.progress.phase is not Phase.STARTED or through_ms is None:
        return False
    return now_ms - through_ms >= record.assigned.spec.report_interval_ms


def gpu_milli_of(record: AttemptRecord) -> int:
    """Milli-GPUs that the attempt holds."""
    return sum(slot.gpu_milli for slot in record.assigned.slots)


def _record_id(
    record: AttemptRecord, numbering: Numbering, interval: Interval, meter: Meter, number: int
) -> UUID:
    """The same for the same record whenever it is made; its time bits are the interval's start."""
    assigned = record.assigned
    whose = (assigned.run_id, assigned.attempt, numbering.node, meter, numbering.epoch, number)
    return derived_id(interval.from_ms, *whose)


def gpu_used(
    record: AttemptRecord, numbering: Numbering, interval: Interval, number: int
) -> GpuUsed:
    """The GPU record of an interval; the attempt holds at least one slot."""
    assigned = record.assigned
    return GpuUsed(
        record_id=_record_id(record, numbering, interval, Meter.GPU, number),
        run_id=assigned.run_id,
        attempt=assigned.attempt,
        fence=assigned.fence,
        epoch=numbering.epoch,
        number=number,
        gpu_type=assigned.slots[0].gpu_type,
        gpu_milli=gpu_milli_of(record),
        from_ms=interval.from_ms,
        duration_ms=interval.duration_ms,
    )


def cpu_used(
    record: AttemptRecord, numbering: Numbering, interval: Interval, number: int
) -> CpuUsed:
    """The CPU record of an interval."""
    assigned = record.assigned
    return CpuUsed(
        record_id=_record_id(record, numbering, interval, Meter.CPU, number),
        run_id=assigned.run_id,
        attempt=assigned.attempt,
        fence=assigned.fence,
        epoch=numbering.epoch,
        number=number,
        cpu_milli=assigned.spec.cpu_milli,
        from_ms=interval.from_ms,
        duration_ms=interval.duration_ms,
    )


def meter_end(meter: Meter, epoch: int, state: MeterState) -> MeterEnd:
    """Where a meter stands. GPU and CPU are summed in milli-milliseconds, said in milliseconds."""
    used = state.used if meter is Meter.TOKENS else state.used // MILLI
    return MeterEnd(meter=meter, epoch=epoch, used=used, last_number=state.last_number)
