"""Makes the host match the plan: one round observes, plans, acts and reports."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog
from orca_runtime.clock import Clock
from orca_schemas.asks import Desired, DesiredAttempt, StopAsked
from orca_schemas.manifest import OnNodeLoss
from orca_schemas.values import Outcome

from orca_node_agent.assignment import attempt_spec
from orca_node_agent.boot import boot_clock_s
from orca_node_agent.endings import LAPSED, never_started
from orca_node_agent.executor import (
    AttemptObserved,
    Executor,
    ExecutorUnavailableError,
    ImageError,
)
from orca_node_agent.guard import Guard
from orca_node_agent.identity import Identity
from orca_node_agent.ledger import Ledger
from orca_node_agent.reconcile import (
    Abandon,
    Action,
    Adopt,
    Host,
    Refuse,
    Remove,
    Renew,
    ReportFinished,
    ReportStarted,
    Start,
    Stop,
    plan,
)
from orca_node_agent.records import Phase, key_of
from orca_node_agent.spool import Spool, SpoolError
from orca_node_agent.spool_thread import SpoolThread

MS_PER_S = 1000
START_RETRY_S = 1.0
ADMIT_S, ADMIT_POLL_S = 15.0, 0.05
"""How long after its decision a start may begin: with wishes.FRESH_S well below the lease."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class GpuState:
    """What the last probe of the GPUs said."""

    uuids: frozenset[str]
    answer: bool


class Steward:
    """Carries out plans. ``wake`` is called when another round is worth doing at once."""

    def __init__(
        self,
        executor: Executor,
        spool: Spool,
        ledger: Ledger,
        thread: SpoolThread,
        identity: Identity,
        guard: Guard,
        clock: Clock,
        usage_url: Callable[[], str],
        gpus: Callable[[], GpuState],
        wake: Callable[[], None],
    ) -> None:
        self._executor, self._spool, self._ledger = executor, spool, ledger
        self._thread, self._identity, self._clock = thread, identity, clock
        self._guard = guard
        self._usage_url, self._gpus, self._wake = usage_url, gpus, wake
        self._round_s = boot_clock_s()
        self._starting: dict[str, asyncio.Task[None]] = {}

    async def round(self, desired: Desired | None) -> None:
        """Observe, plan, act. What fails now is tried again in the next round."""
        self._round_s = boot_clock_s()
        try:
            observed = await self._executor.observe()
            await self._heed(observed, desired)
        except (ExecutorUnavailableError, SpoolError) as error:
            _log.warning("nothing observed, nothing done", error=str(error))
            return
        for action in plan(desired, observed, self._spool.records, self._host()):
            await self._try(action)

    async def _heed(self, observed: Mapping[str, AttemptObserved], desired: Desired | None) -> None:
        """What a lapse of the lease ended is under order to end: node_lost, then and for good.

        Seen after ``observed``, so that no end that the watchdog made is taken for the body's own.
        """
        records = self._spool.records
        stopped = await self._thread.quietly(self._guard.cover, records, observed)
        for key, one in stopped.items():
            record = records.get(key)
            if record is None:
                if key not in observed and not _lists(desired, key):
                    await self._thread.quietly(self._guard.forget, key)
            elif record.progress.phase is not Phase.ENDED and record.progress.stop is None:
                grace_ms = int(one.grace_s(self._identity.host_boot_id, boot_clock_s()) * MS_PER_S)
                order = StopAsked(outcome=Outcome.NODE_LOST, message=LAPSED, grace_ms=grace_ms)
                await self._thread.quietly(self._ledger.order_stop, key, order, one.at_ms)

    async def stop_all(self, message: str) -> int:
        """Order every attempt here to end; how many still live."""
        observed = await self._executor.observe()
        ended = {key for key, seen in observed.items() if seen.phase == "exited"}
        living = (observed.keys() | self._starting.keys()) - ended
        for key in living:
            order = StopAsked(outcome=Outcome.NODE_LOST, message=message, grace_ms=10_000)
            await self._act(Stop(key, order))
        return len(living)

    async def close(self) -> None:
        """Give up starts under way: the next agent finds what they made."""
        for key in list(self._starting):
            await self._cancel_start(key)

    def _host(self) -> Host:
        gpus = self._gpus()
        return Host(
            now_ms=self._clock.now_ms(),
            gpu_uuids=gpus.uuids,
            gpus_answer=gpus.answer,
            spool_full=self._spool.full,
            starting=frozenset(self._starting),
        )

    async def _try(self, action: Action) -> None:
        """Act; one attempt's trouble is not another's. RuntimeError: remains not removable."""
        try:
            await self._act(action)
        except (ExecutorUnavailableError, SpoolError, RuntimeError) as error:
            _log.warning("tried again later", action=type(action).__name__, error=str(error))

    async def _act(self, action: Action) -> None:
        now_ms, thread, ledger = self._clock.now_ms(), self._thread, self._ledger
        match action:
            case Start(attempt):
                await thread(ledger.accept, attempt)
                self._start(attempt)
            case Adopt(attempt):
                _log.warning(
                    "found without a record; its time counts from now", key=key_of(attempt)
                )
                await thread(ledger.adopt, attempt, now_ms)
            case Renew(key, granted_tokens, lease_base_tokens):
                await thread(ledger.renew, key, granted_tokens, lease_base_tokens, now_ms)
            case Stop(key, order):
                await self._stop(key, order)
            case ReportStarted(key, started_at_ms):
                await thread(ledger.started, key, started_at_ms)
            case ReportFinished(key, ending):
                _log.info("attempt ended", key=key, outcome=ending.outcome, message=ending.message)
                await thread(ledger.finish, key, ending, now_ms)
            case Abandon(attempt, ending):
                await self._abandon(Abandon(attempt, ending))
            case Refuse(attempt, reason):
                _log.warning("assignment refused", key=key_of(attempt), reason=reason.message)
                await thread(ledger.refuse, attempt, reason, now_ms)
            case Remove(key):
                await self._executor.remove(key)
                await thread(ledger.forget, key)
                await thread.quietly(self._guard.forget, key)

    def _start(self, attempt: DesiredAttempt) -> None:
        """Start in the background: a pull may take half an hour, and others must not wait."""
        key = key_of(attempt)
        if key not in self._starting:
            self._starting[key] = asyncio.create_task(self._run_start(key, attempt, self._round_s))

    async def _run_start(self, key: str, attempt: DesiredAttempt, decided_s: float) -> None:
        token = self._identity.token(key)
        try:
            if await self._admitted(key, decided_s):
                await self._executor.start(attempt_spec(attempt, self._usage_url(), token))
        except ImageError as error:
            _log.warning("attempt cannot start", key=key, error=str(error))
            ending = never_started(Outcome.IMAGE_ERROR, str(error))
            await self._thread(self._ledger.finish, key, ending, self._clock.now_ms())
        except (ExecutorUnavailableError, SpoolError) as error:
            _log.warning("start is tried again", key=key, error=str(error))
            await asyncio.sleep(START_RETRY_S)  # still "starting", so the next round waits too
        finally:
            self._starting.pop(key, None)
            self._wake()

    async def _admitted(self, key: str, decided_s: float) -> bool:
        """Whether the guard lets it begin, soon after that was decided: else decide anew.

        A watchdog may have to be started first. An agent that was halted here meanwhile must not
        go on as if nothing had happened since.
        """
        record = self._spool.records[key]
        if record.assigned.spec.on_node_loss is not OnNodeLoss.REQUEUE:
            return True
        while boot_clock_s() - decided_s < ADMIT_S:
            if await self._thread.quietly(self._guard.admit, record):
                return boot_clock_s() - decided_s < ADMIT_S
            await asyncio.sleep(ADMIT_POLL_S)
        return False

    async def _stop(self, key: str, order: StopAsked) -> None:
        """Write the order down, then act on it: a crash in between repeats it."""
        if key in self._spool.records:
            await self._thread.quietly(self._ledger.order_stop, key, order, self._clock.now_ms())
        await self._cancel_start(key)
        await self._executor.stop(key, order.grace_ms / MS_PER_S)

    async def _abandon(self, action: Abandon) -> None:
        """The executor makes sure that nothing begins any more; only then it is said."""
        key, now_ms = key_of(action.attempt), self._clock.now_ms()
        await self._thread.quietly(self._ledger.accept, action.attempt)
        stop = action.attempt.stop
        if stop is not None:
            await self._thread.quietly(self._ledger.order_stop, key, stop, now_ms)
        await self._executor.stop(key, stop.grace_ms / MS_PER_S if stop else 0.0)
        if key not in await self._executor.observe():
            await self._thread(self._ledger.finish, key, action.ending, now_ms)

    async def _cancel_start(self, key: str) -> None:
        task = self._starting.get(key)
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def _lists(desired: Desired | None, key: str) -> bool:
    """Whether placement lists the attempt, or may: nobody knows without its answer."""
    if desired is None or not desired.known:
        return True
    return any(key_of(attempt) == key for attempt in desired.attempts)
