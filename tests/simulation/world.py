"""One world: built from a seed, troubled for a while, brought to rest, and judged."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from orca_admission import reserve as admission_reserve
from orca_admission.decider import DECIDER as ADMISSION
from orca_billing.decider import DECIDER as BILLING
from orca_metering.decider import DECIDER as METERING
from orca_placement import draft as placement_draft
from orca_placement.decider import DECIDER as PLACEMENT
from orca_placement.heartbeats import Heartbeats
from orca_runtime import shell as shell_module
from orca_runtime.decider import AnyDecider
from orca_runtime.fold import Folded, fold_one, unfolded
from orca_runtime.log import Stored
from orca_runtime.shell import DeciderShell
from orca_runtime.tables import state_digest

from tests.simulation.checker import Checker
from tests.simulation.faults import Faults, draw
from tests.simulation.loop import StuckError, VirtualLoop
from tests.simulation.model import Violation, must
from tests.simulation.nodes import Node, Site
from tests.simulation.people import People
from tests.simulation.replicas import START_MS, Replica, SimClock
from tests.simulation.simlog import SimLog, View

DECIDERS: dict[str, AnyDecider] = {
    "admission": ADMISSION,
    "placement": PLACEMENT,
    "metering": METERING,
    "billing": BILLING,
}
SMALL: tuple[tuple[Any, str, int], ...] = (
    (shell_module, "GROUP_INPUTS", 5),
    (shell_module, "GROUP_EVENTS", 7),
    (admission_reserve, "MAX_DECISION_EVENTS", 4),
    (placement_draft, "MAX_EVENTS", 3),
)
TROUBLE_S = 120.0
REST_S = 3000.0
"""Virtual seconds in which all must come to rest: metering's grace alone is 900."""
GRACE_S = 1000.0
"""Longer than metering waits for missing records."""
DAYS_MS = 86_400_000


@dataclass(frozen=True)
class Cast:
    """Which deciders and which shell play: the real ones, or ones with a planted bug."""

    deciders: dict[str, AnyDecider] = field(default_factory=lambda: dict(DECIDERS))
    shell: type[DeciderShell[Any]] = DeciderShell
    around: Callable[[], AbstractContextManager[None]] = nullcontext
    """What holds while the world lives."""


@dataclass(frozen=True)
class Outcome:
    """What became of a world. ``problem`` None: all that must hold held."""

    seed: int
    problem: str | None
    step: int
    """Messages stored until then."""
    events: int
    virtual_s: float
    digest: str
    counts: dict[str, int]
    faults: dict[str, int]


class World:
    """Everything of one seed."""

    def __init__(self, seed: int, cast: Cast, loop: VirtualLoop) -> None:
        self.seed, self.loop = seed, loop
        self.faults: Faults = draw(self._rng("faults"))
        self.log = SimLog(lambda: START_MS * 10**6 + int(loop.now_s * 1e9), self._rng("log"),
                          self.faults)  # fmt: skip
        self.checker = Checker()
        self.log.on_stored.append(self._see)
        self.problem: str | None = None
        self.step = 0
        self.failed = asyncio.Event()
        self.done: dict[str, int] = {}
        self.replicas = {
            name: [
                Replica(
                    decider, f"{name}-{at}", self.log, loop, self._rng(f"{name}-{at}"), cast.shell
                )
                for at in range(2)
            ]
            for name, decider in cast.deciders.items()
        }
        self._beats: list[Callable[[str], Awaitable[None]]] = []
        self.site = Site()
        self.nodes = [self._node(at) for at in range(self._rng("nodes").randint(2, 4))]
        self.people = People(self._view("people"), SimClock(loop), self._rng("people"))
        self.rng = self._rng("world")

    def _rng(self, name: str) -> Random:
        return Random(f"{self.seed}/{name}")

    def _view(self, name: str) -> View:
        return View(self.log, self._rng(f"view {name}"))

    def _node(self, at: int) -> Node:
        rng = self._rng(f"node {at}")
        clock = SimClock(self.loop, rng.randint(-1000, 1000))
        gpus = rng.choice((0, 2, 4))
        view = self._view(f"node {at}")
        placement = self.replicas["placement"]
        return Node(f"n{at}", gpus, view, clock, rng, self.site, placement, self._heard)

    # -- what is seen -------------------------------------------------------------------------

    def _see(self, stored: Stored) -> None:
        self.step += 1
        if self.problem is not None:
            return
        try:
            self.checker.see(stored)
        except Violation as violation:
            self.fail(f"{violation} (at {stored.position} {stored.subject})")
        except (KeyError, IndexError, AssertionError) as error:
            self.fail(f"the model does not understand {stored.position}: {error!r}")

    def fail(self, problem: str) -> None:
        """Keep the first problem and end the world."""
        if self.problem is None:
            self.problem = problem
            self.failed.set()

    def _heard(self, node: str) -> None:
        message = SimpleNamespace(subject=f"orca.telemetry.{node}.heartbeat")
        for beat in self._beats:
            asyncio.ensure_future(beat(message))  # noqa: RUF006 - it ends at once

    # -- its course ---------------------------------------------------------------------------

    async def live(self) -> None:
        """Trouble, then rest, then judgement; or the first problem."""
        course = asyncio.create_task(self._course(), name="course")
        failed = asyncio.create_task(self.failed.wait())
        try:
            await asyncio.wait({course, failed}, return_when=asyncio.FIRST_COMPLETED)
            if course.done() and self.problem is None:
                try:
                    course.result()
                except Violation as violation:
                    self.fail(str(violation))
        finally:
            course.cancel()
            failed.cancel()

    async def _course(self) -> None:
        tasks = [asyncio.create_task(self._guard(node.run())) for node in self.nodes]
        tasks += [asyncio.create_task(self._guard(loop)) for loop in self._loops()]
        people = asyncio.create_task(self._guard(self._people()))
        await asyncio.sleep(TROUBLE_S)
        people.cancel()
        await self._come_to_rest()
        self._judge()
        await self._after_a_long_time()

    async def _guard(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Violation as violation:
            self.fail(str(violation))

    async def _people(self) -> None:
        await self.people.begin()
        await self.people.run()

    def _loops(self) -> list[Awaitable[None]]:
        faults = self.faults
        watched = [self._watch(one) for one in self.replicas["placement"]]
        leases = [self._lease(pair) for pair in self.replicas.values()]
        return [
            *watched,
            *leases,
            self._monitor(),
            self._audit(),
            self._every(faults.crash_every_s, self._crash),
            self._every(faults.pause_every_s, self._pause),
            self._every(faults.outage_every_s, self._outage),
            self._every(faults.full_every_s, self._full),
            self._every(faults.node_every_s, self._node_trouble),
            self._every(faults.clock_every_s, self._clock_trouble),
            self._every(faults.blackout_every_s, self._blackout),
        ]

    async def _every(self, mean_s: float, trouble: Callable[[], Awaitable[None]]) -> None:
        while mean_s and self.faults.on:
            await asyncio.sleep(self.rng.expovariate(1 / mean_s))
            if self.faults.on:
                name = trouble.__name__.strip("_")
                self.done[name] = self.done.get(name, 0) + 1
                await trouble()

    async def _monitor(self) -> None:
        while True:
            await asyncio.sleep(1)
            for replica in self._all():
                fault = replica.fault()
                if fault is not None:
                    self.fail(f"law 9: {fault}")

    async def _audit(self) -> None:
        """I3 while all is moving: a replica's state is the fold of what it has seen."""
        rng = self._rng("audit")
        while self.faults.on:
            await asyncio.sleep(rng.random() * TROUBLE_S / 2)
            one = rng.choice(self._all())
            decider, live = one.decider, one.shell.folded
            seen = self.log.all(decider.stream)[: live.sequence]
            folded = _fold(decider, unfolded(decider), seen)
            same = state_digest(decider.state_type, folded.state) == state_digest(
                decider.state_type, live.state
            )
            must(same, "I3", f"{one.name} at {live.sequence} is not the fold of its stream")

    def _all(self) -> list[Replica]:
        return [one for pair in self.replicas.values() for one in pair]

    # -- placement's ears ---------------------------------------------------------------------

    async def _watch(self, replica: Replica) -> None:
        """The real heartbeat watch, for as long as the process lives, then the next one's."""
        while True:
            while not replica.up:  # noqa: ASYNC110 - a process tells nobody that it starts
                await asyncio.sleep(0.5)
            shell, beats = replica.shell, []

            async def subscribe(_: str, cb: Any, into: list[Any] = beats) -> None:
                into.append(cb)
                self._beats.append(cb)

            nc = SimpleNamespace(subscribe=subscribe)
            bus: Any = _Bus(nc, replica.view)
            watch = asyncio.create_task(Heartbeats(shell, bus).run())
            while replica.up and replica.shell is shell:  # noqa: ASYNC110 - nor that it ends
                await asyncio.sleep(0.5)
            watch.cancel()
            for beat in beats:
                self._beats.remove(beat)

    # -- leases -------------------------------------------------------------------------------

    async def _lease(self, pair: list[Replica]) -> None:
        """Let one believe, at times the other too, and now and then change who."""
        next_change_s = 0.0
        while True:
            await asyncio.sleep(0.2)
            now_s = self.loop.now_s
            held = [one for one in pair if one.up and one.lease.held()]
            if not held:
                able = [one for one in pair if one.up and one.lease.not_before_s <= now_s]
                if able:
                    self.rng.choice(able).lease.give()
                continue
            if not self.faults.on:
                for one in held[1:]:
                    one.lease.take()
                continue
            every_s = self.faults.lease_every_s
            if every_s and now_s >= next_change_s:
                next_change_s = now_s + self.rng.expovariate(1 / every_s)
                await self._move_lease(pair, held)

    async def _move_lease(self, pair: list[Replica], held: list[Replica]) -> None:
        others = [one for one in pair if one.up and one not in held]
        if others:
            others[0].lease.give()
        if self.rng.random() < self.faults.zombie:
            await asyncio.sleep(self.rng.random() * 10)
        held[0].lease.take()

    # -- trouble ------------------------------------------------------------------------------

    async def _crash(self) -> None:
        replica = self.rng.choice([one for one in self._all() if one.up] or self._all())
        # At any await: after a random number of the loop's rounds.
        for _ in range(self.rng.randint(0, 40)):
            await asyncio.sleep(0)
        replica.crash(disk_lost=self.rng.random() < 0.3)
        await asyncio.sleep(self.rng.random() * 5)
        if not replica.up:
            replica.start()

    async def _blackout(self) -> None:
        """Everything that decides ends at once."""
        for replica in self._all():
            replica.crash(disk_lost=self.rng.random() < 0.5)
        await asyncio.sleep(self.rng.random() * 10)
        for replica in self._all():
            if not replica.up:
                replica.start()

    async def _pause(self) -> None:
        replica = self.rng.choice(self._all())
        view = replica.view
        view.pause()
        await asyncio.sleep(self.rng.random() * 12)
        view.go_on()

    async def _outage(self) -> None:
        self.log.away = True
        await asyncio.sleep(self.rng.random() * 25)
        self.log.away = False

    async def _full(self) -> None:
        stream = self.rng.choice(("CLIENT", "ADMISSION", "PLACEMENT", "METERING", "BILLING", "NODE",
                                  "USAGE"))  # fmt: skip
        self.log.full.add(stream)
        await asyncio.sleep(self.rng.random() * 10)
        self.log.full.discard(stream)

    async def _node_trouble(self) -> None:
        node = self.rng.choice(self.nodes)
        kind = self.rng.choice(("partition", "partition", "reboot", "disk", "probe"))
        if kind == "probe":
            node.restart_probe()
        elif kind == "partition":
            node.linked = False
            await asyncio.sleep(self.rng.choice((3, 15, 50, 90, 110)))
            node.linked = True
        elif node.alive:
            node.die()
            await asyncio.sleep(self.rng.choice((2, 10, 50)))
            node.boot(disk_lost=kind == "disk")

    async def _clock_trouble(self) -> None:
        clock = self.rng.choice(self._all()).clock
        clock.skew_ms = self.rng.choice((0, self.rng.randint(-20_000, 20_000)))

    # -- rest and judgement -------------------------------------------------------------------

    async def _come_to_rest(self) -> None:
        """No more faults; wait until nothing is left to do."""
        self.faults.on = False
        for node in self.nodes:
            node.calm = True
        rest_by_s = self.loop.now_s + REST_S
        if any(node.withheld for node in self.nodes):
            await asyncio.sleep(GRACE_S)
            for node in self.nodes:
                node.let_go()
        restless: str | None = "not looked yet"
        while restless is not None:
            await asyncio.sleep(5)
            restless = self._restless()
            if self.loop.now_s > rest_by_s:
                raise Violation(f"I7: not at rest after {REST_S} s: {restless}")

    def _restless(self) -> str | None:
        for replica in self._all():
            if not replica.up or replica.view.paused or self.log.away or self.log.full:
                return "trouble is still ending"
            if replica.shell.folded.sequence < self.log.last(replica.decider.stream):
                return f"{replica.name} is behind"
        for node in self.nodes:
            if not node.alive or not node.linked or node.spool:
                return f"{node.name} has not said all"
            if any(body.running or not body.reported for body in node.bodies.values()):
                return f"{node.name} still runs something"
        return self.checker.unsettled()

    def _judge(self) -> None:
        """I3, and the sums of the whole."""
        self.checker.finish(self.site.lost, self.site.produced)
        must(not self.checker.dead_letters or not self._bugs(), "I8", f"{self._bugs()}")
        must(not self.site.running, "I4", f"still running: {self.site.running}")
        for pair in self.replicas.values():
            self._same_state(pair)

    def _bugs(self) -> list[str]:
        """Dead letters that are nobody's malformed input, but a decision that raised."""
        marks = ("Error: ", "AssertionError", "Exception")
        return [one for one in self.checker.dead_letters if any(mark in one for mark in marks)]

    def _same_state(self, pair: list[Replica]) -> None:
        """Fold from zero = snapshot and tail = live state, by digest."""
        decider = pair[0].decider
        events = self.log.all(decider.stream)
        adapter = decider.state_type
        folds = {"zero": unfolded(decider)}
        for one in pair:
            for kept in one.snapshots.kept:
                folds[f"snapshot {kept.folded.sequence} of {one.name}"] = one.snapshots.read(kept)
        digests = {
            name: state_digest(adapter, _fold(decider, folded, events).state)
            for name, folded in folds.items()
        }
        digests |= {one.name: state_digest(adapter, one.shell.folded.state) for one in pair}
        must(len(set(digests.values())) == 1, "I3", f"{decider.role}: {digests}")

    async def _after_a_long_time(self) -> None:
        """Law 11: 40 days later every finished run has left the states."""
        if self.seed % 4:
            return
        for replica in self._all():
            replica.clock.skew_ms += 40 * DAYS_MS
        await asyncio.sleep(120)
        for pair in self.replicas.values():
            for one in pair:
                runs = one.shell.folded.state.runs
                waiting = self.checker.quota.queued if one.decider.role == "admission" else {}
                left = {str(run) for run in runs} - set(waiting)
                must(not left, "law 11", f"{one.name} remembers {len(left)} runs for ever")
            self._same_state(pair)


def _fold(decider: AnyDecider, folded: Folded[Any], events: list[Stored]) -> Folded[Any]:
    for stored in events[folded.sequence :]:
        folded, _ = fold_one(decider, folded, stored)
    return folded


@contextmanager
def bounds(faults: Faults) -> Iterator[None]:
    """Make the bounds of decisions and groups small where this world wants that."""
    with ExitStack() as stack:
        if faults.small_bounds:
            for module, name, value in SMALL:
                stack.enter_context(patch.object(module, name, value))
        yield


class _Bus:
    """What the heartbeat watch needs of a log: a subscription, and whether it is connected."""

    def __init__(self, nc: Any, view: View) -> None:
        self.nc, self._view = nc, view

    @property
    def connected(self) -> bool:
        return self._view.connected


def simulate(seed: int, cast: Cast | None = None) -> Outcome:
    """Run one world to its end. The same seed gives the same world, to the byte."""
    gc.collect()
    gc.disable()
    loop = VirtualLoop()
    try:
        cast = cast or Cast()
        with cast.around(), bounds(draw(Random(f"{seed}/faults"))):
            return loop.run_until_complete(_simulate(seed, cast, loop))
    finally:
        _close(loop)
        gc.enable()


async def _simulate(seed: int, cast: Cast, loop: VirtualLoop) -> Outcome:
    world = World(seed, cast, loop)
    try:
        await world.live()
    except StuckError as error:
        world.fail(f"I7: {error}")
    return Outcome(
        seed=seed,
        problem=world.problem,
        step=world.step,
        events=world.checker.events,
        virtual_s=round(loop.now_s, 3),
        digest=world.checker.hash.hexdigest(),
        counts=dict(world.checker.counts),
        faults=world.done,
    )


def _close(loop: VirtualLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
