"""What is said about attempts: each fact and its message in one commit to the spool."""

from __future__ import annotations

import json
from dataclasses import replace
from uuid import UUID

from orca_schemas.asks import DesiredAttempt, StopAsked
from orca_schemas.events.node import (
    LeaseTopUpRequested,
    NodeJoined,
    OrderRefused,
    TaskFinished,
    TaskStarted,
)
from orca_schemas.events.usage import TokensUsed
from orca_schemas.identifiers import derived_id
from orca_schemas.model import EventData
from orca_schemas.units import MAX_AMOUNT
from orca_schemas.values import Inventory, Meter, Reason, TokenClasses

from orca_node_agent.endings import Ending
from orca_node_agent.meter import (
    Interval,
    Numbering,
    cpu_used,
    gpu_milli_of,
    gpu_used,
    meter_end,
    next_interval,
)
from orca_node_agent.records import AttemptRecord, Phase, Progress, StopRecord, key_of, meters_of
from orca_node_agent.reports import attempt_message, node_message
from orca_node_agent.spool import Change, Spool, StoredAnswer

TOP_UP_PERCENT = 80
PERCENT = 100


class EndedError(Exception):
    """The attempt has ended or is not known: nothing more is counted for it."""


class RepeatedIdError(Exception):
    """A report id came again with other content."""


class AmountError(Exception):
    """The attempt's total would be larger than any amount may be."""


class SpoolFullError(Exception):
    """The spool is at its limit; the report is to be sent again later."""


class Ledger:
    """The only writer of the spool. Blocking: called on the spool's own thread."""

    def __init__(self, spool: Spool, node: str) -> None:
        self._spool, self._node = spool, node
        self._numbering = Numbering(node, spool.epoch)

    def join(self, boot_id: UUID, inventory: Inventory, now_ms: int) -> None:
        """Offer the node to placement, as it is now."""
        with self._spool.change() as change:
            joined = NodeJoined(boot_id=boot_id, inventory=inventory)
            change.say(node_message(self._node, joined, now_ms))

    def accept(self, assigned: DesiredAttempt) -> None:
        """Write an attempt down before its body is made."""
        with self._spool.change() as change:
            if key_of(assigned) not in change.records:
                change.save(_new_record(assigned))

    def adopt(self, assigned: DesiredAttempt, now_ms: int) -> None:
        """Write down an attempt whose body runs and whose record is gone.

        Its time counts from ``now_ms``: what an earlier spool recorded of it is not known, and
        time counted twice would be worse than time not counted.
        """
        record = _new_record(assigned)
        with self._spool.change() as change:
            change.save(_with(record, reported_through_ms=now_ms))

    def refuse(self, assigned: DesiredAttempt, reason: Reason, now_ms: int) -> None:
        """Say that an assignment cannot be carried out here."""
        record = _new_record(assigned)
        refused = OrderRefused(
            run_id=assigned.run_id, attempt=assigned.attempt, fence=assigned.fence, reason=reason
        )
        with self._spool.change() as change:
            self._say(change, record, refused, now_ms)
            change.save(_with(record, phase=Phase.ENDED, ended_at_ms=now_ms, logs_done=True))

    def started(self, key: str, started_at_ms: int) -> None:
        """Say that the body runs; its time counts from here."""
        record = self._spool.records[key]
        assigned = record.assigned
        data = TaskStarted(
            run_id=assigned.run_id,
            attempt=assigned.attempt,
            fence=assigned.fence,
            started_at_ms=started_at_ms,
        )
        through_ms = max(started_at_ms, record.progress.reported_through_ms or 0)
        with self._spool.change() as change:
            self._say(change, record, data, started_at_ms)
            change.save(
                _with(
                    record,
                    phase=Phase.STARTED,
                    started_at_ms=started_at_ms,
                    reported_through_ms=through_ms,
                )
            )

    def order_stop(self, key: str, stop: StopAsked, now_ms: int) -> None:
        """Remember an order to end before acting on it; the first one stands."""
        record = self._spool.records[key]
        if record.progress.stop is not None:
            return
        asked = StopRecord(stop.outcome, stop.message, stop.grace_ms, now_ms)
        with self._spool.change() as change:
            change.save(_with(record, stop=asked))

    def renew(self, key: str, granted_tokens: int | None, lease_base: int, now_ms: int) -> None:
        """Take over what the probe may spend."""
        record = _with(
            self._spool.records[key], granted_tokens=granted_tokens, lease_base_tokens=lease_base
        )
        with self._spool.change() as change:
            change.save(record)
            self._top_up(change, record, now_ms)

    def held(self, key: str, now_ms: int) -> None:
        """Record GPU and CPU time of a running attempt up to ``now_ms``."""
        record = self._spool.records.get(key)
        if record is None or record.progress.phase is not Phase.STARTED:
            return
        with self._spool.change() as change:
            self._count_time(change, record, now_ms)

    def tokens(
        self, key: str, model: str, classes: TokenClasses, client_id: str | None, now_ms: int
    ) -> dict[str, object]:
        """Record tokens; the answer says where the lease stands.

        A report id that came before gets its first answer again and nothing is counted. Raises
        EndedError, RepeatedIdError, AmountError, SpoolFullError, SpoolError.
        """
        record = self._live(key)
        digest = f"{model} {classes.model_dump_json()}"
        with self._spool.change() as change:
            before = change.answer(key, client_id) if client_id is not None else None
            if before is not None:
                return _first_answer(before.digest, digest, before.answer)
            if self._spool.full:
                raise SpoolFullError(key)
            self._bound(change, key, classes.total)
            number, answer = self._count_tokens(change, record, model, classes, now_ms)
            if client_id is not None:
                stored = StoredAnswer(digest, json.dumps(answer))
                change.keep_answer(key, number, client_id, stored)
            self._top_up(change, record, now_ms)
        return answer

    def lease(self, key: str) -> dict[str, object]:
        """Where the lease of an attempt stands. Raises EndedError."""
        record = self._live(key)
        with self._spool.change() as change:
            return _lease(record, change.meter(key, Meter.TOKENS).used)

    def finish(self, key: str, ending: Ending, now_ms: int) -> None:
        """Record the last time held, then say that the body is gone, with every meter's end.

        An end that nobody saw has no time: what is recorded stands.
        """
        record = self._spool.records[key]
        if record.progress.phase is Phase.ENDED:
            return
        finished_at_ms = now_ms if ending.finished_at_ms is None else ending.finished_at_ms
        with self._spool.change() as change:
            if ending.finished_at_ms is not None and record.progress.phase is Phase.STARTED:
                record = self._count_time(change, record, ending.finished_at_ms)
            self._say(
                change, record, self._finished(change, record, ending, finished_at_ms), now_ms
            )
            never_ran = ending.started_at_ms is None
            change.save(_with(record, phase=Phase.ENDED, ended_at_ms=now_ms, logs_done=never_ran))

    def forget(self, key: str) -> None:
        """Drop the record of an attempt that placement no longer lists."""
        with self._spool.change() as change:
            change.forget(key)

    def published_log(self, key: str, offset: int, done: bool) -> None:
        """Remember how far the output is published."""
        record = self._spool.records.get(key)
        if record is None:
            return
        with self._spool.change() as change:
            change.save(_with(record, log_offset=offset, logs_done=done))

    def drop_through(self, seq: int) -> None:
        """Take out of the outbox what the broker has."""
        with self._spool.change() as change:
            change.drop_through(seq)

    def note(self, name: str, value: str) -> None:
        """Write a named value."""
        with self._spool.change() as change:
            change.set_fact(name, value)

    def _live(self, key: str) -> AttemptRecord:
        record = self._spool.records.get(key)
        if record is None or record.progress.phase is Phase.ENDED:
            raise EndedError(key)
        return record

    def _say(self, change: Change, record: AttemptRecord, data: EventData, time_ms: int) -> None:
        change.say(attempt_message(record.assigned, self._node, data, time_ms))

    def _count_time(self, change: Change, record: AttemptRecord, now_ms: int) -> AttemptRecord:
        assert record.progress.reported_through_ms is not None, record.key
        interval = next_interval(record.progress.reported_through_ms, now_ms)
        if interval is None:
            return record
        if record.assigned.slots:
            amount = gpu_milli_of(record) * interval.duration_ms
            number = change.count(record.key, Meter.GPU, amount).last_number
            self._say_used(change, record, interval, Meter.GPU, number)
        amount = record.assigned.spec.cpu_milli * interval.duration_ms
        number = change.count(record.key, Meter.CPU, amount).last_number
        self._say_used(change, record, interval, Meter.CPU, number)
        record = _with(record, reported_through_ms=interval.through_ms)
        change.save(record)
        return record

    def _say_used(
        self, change: Change, record: AttemptRecord, interval: Interval, meter: Meter, number: int
    ) -> None:
        make = gpu_used if meter is Meter.GPU else cpu_used
        data = make(record, self._numbering, interval, number)
        self._say(change, record, data, interval.through_ms)

    def _count_tokens(
        self,
        change: Change,
        record: AttemptRecord,
        model: str,
        classes: TokenClasses,
        now_ms: int,
    ) -> tuple[int, dict[str, object]]:
        assigned, numbering = record.assigned, self._numbering
        state = change.count(record.key, Meter.TOKENS, classes.total)
        data = TokensUsed(
            record_id=derived_id(
                now_ms, assigned.run_id, assigned.attempt, numbering.node, Meter.TOKENS,
                numbering.epoch, state.last_number,
            ),
            run_id=assigned.run_id,
            attempt=assigned.attempt,
            fence=assigned.fence,
            epoch=numbering.epoch,
            number=state.last_number,
            model=model,
            classes=classes,
        )  # fmt: skip
        self._say(change, record, data, now_ms)
        lease = _lease(record, state.used)
        return state.last_number, {"accepted": True, "number": state.last_number} | lease

    def _bound(self, change: Change, key: str, tokens: int) -> None:
        if change.meter(key, Meter.TOKENS).used + tokens > MAX_AMOUNT:
            raise AmountError(key)

    def _top_up(self, change: Change, record: AttemptRecord, now_ms: int) -> None:
        """Ask for more once per grant, when most of it is spent. ``used`` is the run's in all."""
        spendable, granted = record.progress.spendable_tokens, record.progress.granted_tokens
        used = change.meter(record.key, Meter.TOKENS).used
        if spendable is None or granted is None or used * PERCENT < spendable * TOP_UP_PERCENT:
            return
        if record.progress.phase is Phase.ENDED or record.progress.topped_up_grant == granted:
            return
        assigned = record.assigned
        data = LeaseTopUpRequested(
            run_id=assigned.run_id,
            attempt=assigned.attempt,
            fence=assigned.fence,
            meter=Meter.TOKENS,
            used=min(record.progress.lease_base_tokens + used, MAX_AMOUNT),
            granted_tokens=granted,
        )
        self._say(change, record, data, now_ms)
        change.save(_with(record, topped_up_grant=granted))

    def _finished(
        self, change: Change, record: AttemptRecord, ending: Ending, finished_at_ms: int
    ) -> TaskFinished:
        assigned = record.assigned
        return TaskFinished(
            run_id=assigned.run_id,
            attempt=assigned.attempt,
            fence=assigned.fence,
            outcome=ending.outcome,
            exit_code=ending.exit_code,
            message=ending.message,
            started_at_ms=ending.started_at_ms,
            finished_at_ms=finished_at_ms,
            used=tuple(
                meter_end(meter, self._numbering.epoch, change.meter(record.key, meter))
                for meter in meters_of(record)
            ),
        )


def _new_record(assigned: DesiredAttempt) -> AttemptRecord:
    progress = Progress(Phase.ACCEPTED, assigned.granted_tokens, assigned.lease_base_tokens)
    return AttemptRecord(key_of(assigned), assigned, progress)


def _with(record: AttemptRecord, **changes: object) -> AttemptRecord:
    return replace(record, progress=replace(record.progress, **changes))  # type: ignore[arg-type]


def _first_answer(first: str, again: str, answer: str) -> dict[str, object]:
    if first != again:
        raise RepeatedIdError(answer)
    found: dict[str, object] = json.loads(answer)
    return found


def _lease(record: AttemptRecord, used: int) -> dict[str, object]:
    spendable = record.progress.spendable_tokens
    return {
        "used_tokens": used,
        "granted_tokens": spendable,
        "remaining_tokens": None if spendable is None else max(0, spendable - used),
        "exhausted": spendable is not None and used >= spendable,
    }
