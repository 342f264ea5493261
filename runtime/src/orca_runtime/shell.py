"""The shell of a decider: reads, decides in groups, appends under the fence, stands by.

Numbered as it runs: 1 catch up with the own stream, 2 stand by until the lease is held, 3 be
active until the lease or the fence says otherwise, then from 1 again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import structlog
from orca_schemas.events.common import InputDeadLettered

from orca_runtime.clock import Clock
from orca_runtime.decider import Decider
from orca_runtime.errors import (
    ConflictError,
    IntegrityError,
    LogUnavailableError,
    StreamFullError,
    UnknownEventError,
)
from orca_runtime.fold import Folded, fold_one, unfolded
from orca_runtime.inbox import Inbox
from orca_runtime.integrity import check_marks, marks_of
from orca_runtime.lease import Lease
from orca_runtime.log import EventLog
from orca_runtime.metrics import DeciderMetrics
from orca_runtime.own_mark import NoMark, OwnMark
from orca_runtime.recorded import Due, Recorded, Unreadable
from orca_runtime.redrive import is_request, prepare
from orca_runtime.snapshot import NoSnapshots, Snapshots
from orca_runtime.speculate import Input, Observation, Speculation, seal, speculate
from orca_runtime.timers import Timers
from orca_runtime.tracing import Tracer

S = TypeVar("S")

GROUP_INPUTS = 256
"""Inputs decided into one append: large enough to share a disk sync among many."""
GROUP_EVENTS = 800
"""Stop adding decisions here: one more (at most 100 events) still fits one atomic batch."""
GROUP_BYTES = 8 * 2**20
"""Likewise: what a slow disk takes well within the time in which an append must be known."""
MAX_OBSERVATIONS = 1024
RETRY_S = 1.0
NOT_READY_RETRY_S = 5.0
IDLE_S = 0.5
"""How often an idle active replica looks whether it still holds the lease."""

_log = structlog.get_logger(__name__)


class DeciderShell(Generic[S]):
    """Runs one decider over a log. ``run`` returns only when cancelled."""

    def __init__(
        self,
        decider: Decider[S, Any],
        log: EventLog,
        *,
        clock: Clock,
        lease: Lease,
        metrics: DeciderMetrics | None = None,
        tracer: Tracer | None = None,
        snapshots: Snapshots[S] | None = None,
        mark: OwnMark | None = None,
    ) -> None:
        self.decider, self.log, self.clock, self.lease = decider, log, clock, lease
        self.metrics = metrics or DeciderMetrics(decider.role.value)
        self.tracer = tracer or Tracer(decider.role.value, None)
        self.snapshots: Snapshots[S] = snapshots or NoSnapshots()
        self.mark = mark or NoMark()
        self.folded: Folded[S] = unfolded(decider)
        self.epoch = 0
        self.ready = False
        self.active = False
        self.reason = "starting"
        self.on_event: list[Callable[[Recorded], None]] = []
        self._timers = Timers(decider)
        self._full = ""
        """That the own stream was full, until an append succeeds again."""
        self._ends_at_due: dict[str, int] | None = None
        self._left_over: list[Input] = []
        self._inbox = Inbox(decider, log)
        self._observations: asyncio.Queue[Observation] = asyncio.Queue(MAX_OBSERVATIONS)

    # -- what others may ask ------------------------------------------------------------------

    def observe(self, observation: Observation) -> None:
        """Hand in something seen outside the streams. Dropped unless active, or when too many."""
        if self.active:
            with contextlib.suppress(asyncio.QueueFull):
                self._observations.put_nowait(observation)
                self._inbox.arrived.set()

    def waiting(self) -> dict[str, int]:
        """Inputs read and undecided, per stream."""
        return dict(self._inbox.waiting())

    # -- the loop -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Catch up, stand by, be active; begin again after every end of a term."""
        loaded = False
        while True:
            try:
                if not loaded:
                    await self._load()
                    loaded = True
                await self._catch_up()
                await self._stand_by()
                await self._be_active()
            except ConflictError as error:
                self.metrics.conflicts.inc()
                self._stand_down(f"a rival wrote: {error}")
            except (LogUnavailableError, StreamFullError) as error:
                if isinstance(error, StreamFullError):
                    self._full = f"stood down: {error}"
                self._stand_down(str(error))
                await asyncio.sleep(RETRY_S)
            except (IntegrityError, UnknownEventError) as error:
                self._not_ready(str(error))
                await asyncio.sleep(NOT_READY_RETRY_S)
                loaded = False

    async def _load(self) -> None:
        loaded = await self.snapshots.load()
        self.folded = loaded or unfolded(self.decider)

    async def _catch_up(self) -> None:
        """Fold the own stream to its end and check that every input done still exists."""
        marks = await marks_of(self.log, self.decider.stream)
        own = await self.log.state(self.decider.stream)
        check_marks(own, marks)
        self.mark.check(own)
        if self.epoch and own.epoch != self.epoch:
            self.folded = unfolded(self.decider)
        self.epoch = own.epoch
        if own.last_sequence < self.folded.sequence:
            found = f"ends at {own.last_sequence}, yet {self.folded.sequence} was seen"
            raise IntegrityError(own.stream, own.last_sequence, found)
        await self._fold_to(own.last_sequence)
        await self._check_cursor()
        self._timers.reset(self.folded.state)
        self.ready, self.reason = True, self._full or "standing by"
        self.metrics.ready.set(1)

    async def _fold_to(self, end: int) -> None:
        if self.folded.sequence >= end:
            return
        async for batch in self.log.read(self.decider.stream, self.folded.sequence):
            for stored in batch:
                self.folded, _ = fold_one(self.decider, self.folded, stored)
            self.snapshots.offer(self.folded, self.epoch)
            if self.folded.sequence >= end:
                return

    async def _check_cursor(self) -> None:
        for stream, (epoch, sequence) in self.folded.cursor.items():
            found = await self.log.state(stream)
            if found.epoch != epoch:
                raise IntegrityError(stream, sequence, "was made anew since it was last read")
            if found.last_sequence < sequence:
                lost = f"ends at {found.last_sequence}, yet {sequence} was decided"
                raise IntegrityError(stream, found.last_sequence, lost)

    async def _stand_by(self) -> None:
        """Follow the active replica until the lease is ours, then catch up with its last word."""
        if not self.lease.held():
            follower = asyncio.create_task(self._follow())
            waiter = asyncio.create_task(self.lease.wait_held())
            try:
                await asyncio.wait({follower, waiter}, return_when=asyncio.FIRST_COMPLETED)
                if follower.done():
                    follower.result()
            finally:
                for task in (follower, waiter):
                    task.cancel()
                await asyncio.gather(follower, waiter, return_exceptions=True)
        await self._catch_up()

    async def _follow(self) -> None:
        async for batch in self.log.read(self.decider.stream, self.folded.sequence):
            for stored in batch:
                self.folded, event = fold_one(self.decider, self.folded, stored)
                self._tell(event)
            self.snapshots.offer(self.folded, self.epoch)

    async def _be_active(self) -> None:
        self._inbox = Inbox(self.decider, self.log)
        # What an earlier term saw says nothing now: silence counts from the take-over on.
        self._observations = asyncio.Queue(MAX_OBSERVATIONS)
        self._ends_at_due, self._left_over = None, []
        self._inbox.start(self.folded.cursor)
        self._set_active(True, "active")
        try:
            while self.lease.held():
                await self._turn()
            self.reason = "the lease lapsed"
        finally:
            self._set_active(False, self.reason)
            await self._inbox.stop()

    def _set_active(self, active: bool, reason: str) -> None:
        self.active, self.reason = active, reason
        self.metrics.active.set(int(active))
        _log.info(reason, service=self.decider.role.value, sequence=self.folded.sequence)

    def _stand_down(self, reason: str) -> None:
        self.reason = reason
        self.lease.give_up()
        _log.warning("stands down", service=self.decider.role.value, reason=reason)

    def _not_ready(self, reason: str) -> None:
        self.ready = False
        self.metrics.ready.set(0)
        self._stand_down(f"not ready: {reason}")
        _log.error("not ready", service=self.decider.role.value, reason=reason)

    # -- one turn -----------------------------------------------------------------------------

    async def _turn(self) -> None:
        """1 gather inputs 2 decide on speculative state 3 append 4 make it the state."""
        self._inbox.check()
        self._inbox.arrived.clear()
        inputs = await self._prepared(await self._gather())
        if not inputs:
            await self._rest()
            return
        started_ns = time.time_ns()
        spec = self._decide(inputs)
        self.metrics.decide_seconds.observe((time.time_ns() - started_ns) / 1e9)
        if spec.outgoing:
            appending_ns = time.time_ns()
            expected = self.folded.sequence
            await self.log.append(self.decider.stream, expected, spec.outgoing)
            self.metrics.append_seconds.observe((time.time_ns() - appending_ns) / 1e9)
            self._full = ""
            self.mark.note(self.epoch, spec.folded.sequence)
        self._commit(inputs, spec, started_ns)

    async def _gather(self) -> list[Input]:
        if self._left_over:
            inputs, self._left_over = self._left_over, []
            return inputs
        inputs = []
        while not self._observations.empty() and len(inputs) < GROUP_INPUTS:
            inputs.append(self._observations.get_nowait())
        ends = {
            stream: (await self.log.state(stream)).last_sequence
            for stream in sorted(self._inbox.read_first_streams())
        }
        taken = self._inbox.take(self.folded.cursor, ends, GROUP_INPUTS)
        inputs.extend(taken)
        inputs.extend(await self._due())
        await self._inbox.rule_out_needs(self.folded.cursor)
        return inputs

    async def _prepared(self, inputs: list[Input]) -> list[Input]:
        """Give a request about a dead letter a turn of its own, once all before it is decided."""
        for index, given in enumerate(inputs):
            if isinstance(given, Recorded) and is_request(self.decider, given):
                alone = max(index, 1)
                inputs, self._left_over = inputs[:alone], inputs[alone:]
                if index == 0:
                    folded = self.folded
                    args = (self.decider, self.log, given, folded.letters, folded.cursor)
                    return [await prepare(*args)]
                break
        return inputs

    async def _due(self) -> list[Input]:
        """Timers that are due, once all that was in the inputs by then is decided (law 4)."""
        now = max(self.clock.now_ms(), self.folded.time_ms)
        due = self._timers.due(now, GROUP_INPUTS)
        if not due:
            self._ends_at_due = None
            return []
        if self._ends_at_due is None:
            self._ends_at_due = {
                stream: (await self.log.state(stream)).last_sequence
                for stream in self.decider.reads
            }
        if any(self.folded.done(stream) < end for stream, end in self._ends_at_due.items()):
            return []
        self._ends_at_due = None
        return list(due)

    def _decide(self, inputs: list[Input]) -> Speculation[S]:
        """Decide as many inputs as one append may hold; the others are the next turn's."""
        spec = Speculation(self.folded, self.epoch)
        now = self.clock.now_ms()
        for index, given in enumerate(inputs):
            if len(spec.outgoing) >= GROUP_EVENTS or spec.size_bytes >= GROUP_BYTES:
                self._left_over = inputs[index:] + self._left_over
                del inputs[index:]
                break
            if isinstance(given, Due):
                spec = self._decide_due(spec, given, now)
            else:
                spec = speculate(self.decider, spec, given, now)
        return seal(self.decider, spec)

    def _decide_due(self, spec: Speculation[S], due: Due, now: int) -> Speculation[S]:
        """Decide a timer unless what was decided before it, in this append too, took it back."""
        if due not in self.decider.timers(spec.folded.state, due.entity):
            self._timers.refresh(self.folded.state, due.entity)
            return spec
        spec = speculate(self.decider, spec, due, now)
        if isinstance(spec.events[-1].data, InputDeadLettered):
            self._timers.set_aside(due)
        return spec

    def _commit(self, inputs: list[Input], spec: Speculation[S], started_ns: int) -> None:
        self.folded = spec.folded
        for event, cause in zip(spec.events, spec.causes, strict=True):
            self._timers.follow(self.folded.state, event)
            self._tell(event)
            self.tracer.event(
                f"{self.decider.role} {event.subject.event}",
                event.traceparent,
                cause.traceparent,
                started_ns,
                time.time_ns(),
            )
        self._count(inputs, spec)
        self.snapshots.offer(self.folded, self.epoch)

    def _tell(self, event: Recorded) -> None:
        for listener in self.on_event:
            listener(event)

    def _count(self, inputs: list[Input], spec: Speculation[S]) -> None:
        service = self.metrics.service
        for given in inputs:
            if isinstance(given, Recorded | Unreadable):
                self.metrics.inputs.labels(service, given.position.stream).inc()
        for event in spec.events:
            self.metrics.events.labels(service, event.subject.event).inc()
        if spec.events:
            self.metrics.group.observe(len(spec.events))
        for stream, count in self._inbox.waiting().items():
            self.metrics.waiting.labels(service, stream).set(count)

    async def _rest(self) -> None:
        """Wait for an input, a timer, or the time to look at the lease."""
        wait_s = IDLE_S
        next_at_ms = self._timers.next_at_ms()
        # A timer that waits for inputs to be read falls due when they arrive.
        if next_at_ms is not None and self._ends_at_due is None:
            until_s = (next_at_ms - max(self.clock.now_ms(), self.folded.time_ms)) / 1000
            wait_s = min(IDLE_S, max(until_s, 0.01))
        # Not wait_for: in Python 3.11 it swallows a cancellation that meets the arrival.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._inbox.arrived.wait()
