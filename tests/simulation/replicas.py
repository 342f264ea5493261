"""Replicas of the deciders: started, crashed, paused, with leases that may lie and snapshots."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Generic, TypeVar

from orca_runtime.decider import AnyDecider
from orca_runtime.fold import Folded
from orca_runtime.metrics import DeciderMetrics
from orca_runtime.shell import DeciderShell

from tests.simulation.loop import VirtualLoop
from tests.simulation.simlog import SimLog, View

S = TypeVar("S")

START_MS = 1_764_547_200_000
"""2025-12-01T00:00:00Z in Unix ms: when every world begins by a clock that is right."""
GIVEN_UP_S = 2.0


class SimClock:
    """A process's clock: the virtual time, off by ``skew_ms``."""

    def __init__(self, loop: VirtualLoop, skew_ms: int = 0) -> None:
        self._loop, self.skew_ms = loop, skew_ms

    def now_ms(self) -> int:
        """Unix ms by this clock."""
        return START_MS + int(self._loop.now_s * 1000) + self.skew_ms

    def steady_s(self) -> float:
        """Virtual seconds."""
        return self._loop.now_s


class SimLease:
    """Whether one replica believes that it is active. The world gives and takes the belief."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._given = asyncio.Event()
        self.not_before_s = 0.0

    def give(self) -> None:
        """Make it believe."""
        self._given.set()

    def take(self) -> None:
        """Let the belief lapse."""
        self._given.clear()

    def held(self) -> bool:
        """See Lease.held."""
        return self._given.is_set()

    async def wait_held(self) -> None:
        """See Lease.wait_held."""
        await self._given.wait()

    def give_up(self) -> None:
        """See Lease.give_up."""
        self._given.clear()
        self.not_before_s = self._loop.now_s + GIVEN_UP_S


@dataclass
class Kept(Generic[S]):
    """One snapshot, as bytes, as a file would hold it."""

    folded: Folded[Any]
    state: bytes


class SimSnapshots(Generic[S]):
    """Snapshots in memory, taken often. They outlive the process unless its disk is lost."""

    def __init__(self, decider: AnyDecider, every: int) -> None:
        self._decider, self._every = decider, every
        self.kept: list[Kept[S]] = []

    async def load(self) -> Folded[S] | None:
        """Read the newest back from its bytes."""
        return self.read(self.kept[-1]) if self.kept else None

    def read(self, kept: Kept[S]) -> Folded[S]:
        """The fold that a snapshot holds."""
        return replace(kept.folded, state=self._decider.state_type.validate_json(kept.state))

    def offer(self, folded: Folded[S], epoch: int) -> None:
        """Take one after every so many own events."""
        last = self.kept[-1].folded.sequence if self.kept else 0
        if folded.sequence - last >= self._every:
            state = self._decider.state_type.dump_json(folded.state)
            self.kept = [*self.kept[-1:], Kept(replace(folded, state=None), state)]


class Replica:
    """One process of a service."""

    def __init__(
        self,
        decider: AnyDecider,
        name: str,
        log: SimLog,
        loop: VirtualLoop,
        rng: Random,
        shell_type: type[DeciderShell[Any]],
    ) -> None:
        self.decider, self.name = decider, name
        self._log, self._loop, self.rng, self._shell_type = log, loop, rng, shell_type
        self.clock = SimClock(loop, rng.randint(-2000, 2000))
        self.snapshots: SimSnapshots[Any] = SimSnapshots(decider, rng.choice((20, 60, 200)))
        self._metrics = DeciderMetrics(decider.role.value)
        self.ended: list[asyncio.Task[None]] = []
        self.task: asyncio.Task[None] | None = None
        self.start()

    def start(self) -> None:
        """Begin a process."""
        self.view = View(self._log, self.rng)
        self.lease = SimLease(self._loop)
        self.shell = self._shell_type(
            self.decider,
            self.view,
            clock=self.clock,
            lease=self.lease,
            metrics=self._metrics,
            snapshots=self.snapshots,
        )
        self.task = asyncio.create_task(self.shell.run(), name=self.name)

    def crash(self, disk_lost: bool) -> None:
        """End the process at whatever await it is."""
        if self.task is None:
            return
        self.task.cancel()
        self.ended.append(self.task)
        self.task = None
        self.lease.take()
        if disk_lost:
            self.snapshots.kept = []

    @property
    def up(self) -> bool:
        """Whether the process lives."""
        return self.task is not None

    def fault(self) -> str | None:
        """What is wrong with this process that nobody planned."""
        for task in [*self.ended, *([self.task] if self.task else [])]:
            if task.done() and not task.cancelled() and task.exception() is not None:
                return f"{self.name} died: {task.exception()!r}"
        if self.up and self.shell.reason.startswith("not ready"):
            return f"{self.name}: {self.shell.reason}"
        return None
