"""The agent: its loops, each of which may fail for a while without stopping the others."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog
from orca_runtime.clock import Clock
from orca_runtime.errors import LogUnavailableError
from orca_schemas.limits import LEASE_TTL_MS
from orca_schemas.subjects import telemetry_subject
from orca_schemas.values import Inventory

from orca_node_agent.boot import boot_clock_s
from orca_node_agent.docker_engine import DEFAULT_DOCKER_HOST
from orca_node_agent.endings import CLOCK_GRAIN_MS
from orca_node_agent.executor import AttemptPhase, Executor, ExecutorUnavailableError
from orca_node_agent.gpus import GpuBackend, GpuProbeError
from orca_node_agent.guard import Guard
from orca_node_agent.host import Capacity, inventory
from orca_node_agent.identity import Identity
from orca_node_agent.lease import Bodies
from orca_node_agent.ledger import Ledger
from orca_node_agent.meter import is_due
from orca_node_agent.ports import Bus
from orca_node_agent.probe import UsageProbe
from orca_node_agent.probe_server import ProbeServer
from orca_node_agent.publisher import Publisher
from orca_node_agent.records import Phase
from orca_node_agent.spool import Spool, SpoolError, SpoolLimits
from orca_node_agent.spool_thread import SpoolThread
from orca_node_agent.steward import GpuState, Steward
from orca_node_agent.tail import LogTail
from orca_node_agent.wishes import ASK_INTERVAL_S, Wishes

BEAT_INTERVAL_S = 2.0
ROUND_INTERVAL_S = 0.5
METER_INTERVAL_S = 0.5
LOG_INTERVAL_S = 0.5
INVENTORY_INTERVAL_S = 30.0
REJOIN_INTERVAL_S = 10.0
FLUSH_S = 5.0
STOP_WAIT_S = 15.0
STOPPED_WITH_AGENT = "the node agent was stopped with its tasks"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    """What an operator decides for a node."""

    node: str
    capacity: Capacity
    usage_port: int = 0
    limits: SpoolLimits = field(default_factory=SpoolLimits)
    stop_tasks_on_exit: bool = False
    docker_host: str = DEFAULT_DOCKER_HOST
    lease_ttl_ms: int = LEASE_TTL_MS


class Agent:
    """One node. ``run`` lasts until ``stop`` is called; what runs, runs on."""

    def __init__(
        self,
        options: Options,
        identity: Identity,
        executor: Executor,
        gpus: GpuBackend,
        bus: Bus,
        clock: Clock,
    ) -> None:
        self._options, self._identity = options, identity
        self._wake, self._hinted, self._stopping = (asyncio.Event() for _ in range(3))
        self._executor, self._gpus, self._bus, self._clock = executor, gpus, bus, clock
        self._thread = SpoolThread()
        self.spool = Spool(identity.data_dir / "spool.db", options.limits, clock.now_ms())
        self._ledger = ledger = Ledger(self.spool, options.node)
        self._publisher = Publisher(self.spool, ledger, self._thread, bus)
        self._wishes = Wishes(
            (options.node, identity.boot_id), bus, self.spool, ledger, self._thread
        )
        self._tail = LogTail(options.node, executor, self.spool, ledger, self._thread, bus)
        bodies = Bodies(executor.name, options.node, options.docker_host)
        self._guard = Guard(identity.data_dir, bodies, options.lease_ttl_ms)
        self._beaten_s: float | None = None
        self.server = _server(options, identity, ledger, self._thread, clock)
        self._steward = Steward(
            executor,
            self.spool,
            ledger,
            self._thread,
            identity,
            self._guard,
            clock,
            usage_url=lambda: self.server.url,
            gpus=self._gpu_state,
            wake=self._wake.set,
        )
        self._inventory: Inventory | None = None
        self._gpus_answer = True
        self._joined_s = -REJOIN_INTERVAL_S

    @property
    def gpus_answer(self) -> bool:
        """Whether the GPU driver answered when last asked."""
        return self._gpus_answer

    def stop(self) -> None:
        """End ``run`` in good order."""
        self._stopping.set()

    async def run(self) -> None:
        """Serve until stopped. Raises what no loop can live without (a taken port, a bug)."""
        living = (r.progress.phase is not Phase.ENDED for r in self.spool.records.values())
        await self.server.start(may_move=not any(living))
        try:
            await self._take_inventory()
            async with asyncio.TaskGroup() as group:
                loops = [group.create_task(loop()) for loop in self._loops()]
                rounds = [
                    group.create_task(self._every(METER_INTERVAL_S, self._meter)),
                    group.create_task(self._every(LOG_INTERVAL_S, self._tail.round)),
                ]
                await self._stopping.wait()
                # A round cut off between sending output and noting it would send it again.
                await asyncio.wait(rounds, timeout=FLUSH_S)
                for task in (*loops, *rounds):
                    task.cancel()
            await self._leave()
        finally:
            await self._close()

    def _loops(self) -> tuple[Callable[[], Coroutine[Any, Any, None]], ...]:
        return (
            self._publisher.run,
            self._beat,
            self._ask,
            self._hear_hints,
            self._reconcile,
            self._watch_inventory,
        )

    async def _beat(self) -> None:
        """Heartbeats depend on nothing but the clock and the broker."""
        subject = telemetry_subject(self._options.node, "heartbeat")
        while True:
            beat_s = boot_clock_s()
            with contextlib.suppress(LogUnavailableError):
                await self._bus.beat(subject, json.dumps(self._heartbeat()).encode())
                self._beaten_s = beat_s
            await asyncio.sleep(BEAT_INTERVAL_S)

    def _heartbeat(self) -> dict[str, object]:
        return {
            "boot_id": str(self._identity.boot_id),
            "sequence_acted": self._wishes.acted_on[1],
            "spool_rows": self.spool.rows,
            "time_ms": self._clock.now_ms(),
            "gpus_answer": self._gpus_answer,
        }

    async def _ask(self) -> None:
        """Ask placement each interval, and at once on a hint."""
        while True:
            self._hinted.clear()
            with contextlib.suppress(SpoolError):
                await self._ask_once()
            self._wake.set()
            await _wait(self._hinted, ASK_INTERVAL_S)

    async def _ask_once(self) -> None:
        """An answer renews the lease as of the last heartbeat before the question.

        Placement counts silence from heartbeats. One connection keeps their order, so whoever
        answers the question has been sent that heartbeat.
        """
        beaten_s = self._beaten_s
        if await self._wishes.ask() and beaten_s is not None:
            await self._thread.quietly(self._guard.renew, beaten_s, self._clock.now_ms())

    async def _hear_hints(self) -> None:
        async for _ in self._bus.hints():
            self._hinted.set()

    async def _reconcile(self) -> None:
        while True:
            self._wake.clear()
            desired = self._wishes.current()
            if desired is not None and not desired.known:
                await self._rejoin()
            await self._steward.round(desired)
            await _wait(self._wake, ROUND_INTERVAL_S)

    async def _rejoin(self) -> None:
        """Placement does not know the node: offer it again, but give it time to read."""
        if self._clock.steady_s() - self._joined_s >= REJOIN_INTERVAL_S:
            await self._join()

    async def _join(self) -> None:
        assert self._inventory is not None
        self._joined_s = self._clock.steady_s()
        with contextlib.suppress(SpoolError):  # placement will answer that it does not know us
            await self._thread(
                self._ledger.join,
                self._identity.boot_id,
                self._inventory,
                self._clock.now_ms(),
            )

    async def _watch_inventory(self) -> None:
        while True:
            await asyncio.sleep(INVENTORY_INTERVAL_S)
            await self._take_inventory()

    async def _take_inventory(self) -> None:
        """Probe the GPUs; offer the node where that changes its offer.

        While the driver does not answer, what it last said stands and no GPU task is begun.
        """
        gpus = self._inventory.gpus if self._inventory else ()
        try:
            gpus = await self._gpus.inventory()
            self._gpus_answer = True
        except GpuProbeError as error:
            _log.error("GPUs do not answer", error=str(error))
            self._gpus_answer = False
        found = inventory(gpus, self._options.capacity, self._executor.name)
        if found != self._inventory:
            self._inventory = found
            await self._join()

    def _gpu_state(self) -> GpuState:
        gpus = self._inventory.gpus if self._inventory else ()
        return GpuState(frozenset(gpu.uuid for gpu in gpus), self._gpus_answer)

    async def _meter(self) -> None:
        """Record the time of attempts whose interval is over; a full spool waits for the end."""
        now_ms = self._clock.now_ms() - CLOCK_GRAIN_MS  # an end seen later may be dated a tick back
        due = [record.key for record in self.spool.records.values() if is_due(record, now_ms)]
        if not due or self.spool.full:
            return
        try:
            # Seen after now_ms was taken: what still runs has run until then.
            observed = await self._executor.observe()
            for key in due:
                if key in observed and observed[key].phase is AttemptPhase.RUNNING:
                    await self._thread(self._ledger.held, key, now_ms)
        except (ExecutorUnavailableError, SpoolError) as error:
            _log.warning("usage waits", error=str(error))

    async def _every(
        self, interval_s: float, round_: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        while not self._stopping.is_set():
            await round_()
            await _wait(self._stopping, interval_s)

    async def _leave(self) -> None:
        """Say what is left to say; end the tasks only where that was asked for."""
        if self._options.stop_tasks_on_exit:
            await self._stop_tasks()
        await self._steward.close()
        if not await self._publisher.flush(FLUSH_S):
            _log.warning("left in the spool for the next agent", rows=self.spool.rows)

    async def _stop_tasks(self) -> None:
        try:
            async with asyncio.timeout(STOP_WAIT_S):
                while True:
                    if not await self._steward.stop_all(STOPPED_WITH_AGENT):
                        break
                    await asyncio.sleep(ROUND_INTERVAL_S)
                await self._steward.round(None)
                await self._tail.round()
        except (TimeoutError, ExecutorUnavailableError, SpoolError) as error:
            _log.warning("tasks may still run", error=str(error))

    async def _close(self) -> None:
        await self._steward.close()
        await self.server.close()
        await self._executor.close()
        with contextlib.suppress(SpoolError):
            await self._thread.quietly(self._guard.close, self.spool.records)
        self._thread.close()
        self.spool.close()


def _server(
    options: Options, identity: Identity, ledger: Ledger, thread: SpoolThread, clock: Clock
) -> ProbeServer:
    application = UsageProbe(ledger, thread, identity, clock).application()
    return ProbeServer(application, options.usage_port, _port_file(identity.data_dir))


def _port_file(data_dir: Path) -> Path:
    return data_dir / "usage_port"


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
