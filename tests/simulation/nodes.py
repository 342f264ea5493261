"""A small honest model of the node agent: it asks, runs, counts, reports, dies and returns.

What it keeps of the agent's contract: a spool that is sent in order and until acknowledged,
usage numbered without a hole, a lease that is never overspent, one body per attempt, answers
older than one acted on ignored, a watchdog for bodies that may be requeued.

The watchdog, and the wait after a boot (``Node.patient``), are the contract as it should be.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import UUID

from orca_placement import queries
from orca_runtime.asks import Ask
from orca_runtime.errors import LogError
from orca_runtime.log import Outgoing
from orca_schemas.asks import DesiredAttempt
from orca_schemas.codec import encode
from orca_schemas.envelope import Envelope
from orca_schemas.events.node import (
    LeaseTopUpRequested,
    NodeJoined,
    OrderRefused,
    TaskFinished,
    TaskStarted,
)
from orca_schemas.events.usage import CpuUsed, GpuUsed, TokensUsed
from orca_schemas.identifiers import CLUSTER, derived_id
from orca_schemas.manifest import OnNodeLoss
from orca_schemas.model import EventData
from orca_schemas.subjects import Kind, Role, Subject
from orca_schemas.values import (
    Gpu,
    Inventory,
    Meter,
    MeterEnd,
    Outcome,
    Reason,
    ReasonCode,
    TokenClasses,
)

from tests.simulation.model import Violation
from tests.simulation.replicas import Replica, SimClock
from tests.simulation.simlog import View

LEASE_TTL_S = 30.0
TICK_S = 2.0
RETRY_S = 1.0
MODELS = ("llama-4", "glm-5")
REFUSED = Reason(code=ReasonCode.NODE_HEALTH, message="simulated: the driver does not answer")


@dataclass
class Count:
    """One meter under one epoch: the last number, and the sum in its unit (ms x milli, tokens)."""

    last_number: int = 0
    used: int = 0


@dataclass
class Body:
    """A container, or what is remembered of one."""

    given: DesiredAttempt
    namespace: str
    started_ms: int | None
    ends_at_s: float
    outcome: Outcome
    hunger: float
    """How many tokens it wants per second."""
    running: bool = True
    reported: bool = False
    counted_to_ms: int = 0
    granted: int | None = None
    asked_at_grant: int = -1
    tokens_used: int = 0
    stop_at_s: float | None = None
    stop_outcome: Outcome | None = None
    meters: dict[tuple[Meter, int], Count] = field(default_factory=dict)

    @property
    def spendable(self) -> float:
        """Tokens it may still use."""
        if self.granted is None:
            return float("inf")
        return max(0, self.granted - self.given.lease_base_tokens - self.tokens_used)


@dataclass
class Site:
    """What all nodes share: who runs what where, and every record that was ever counted."""

    running: dict[UUID, str] = field(default_factory=dict)
    produced: set[tuple[Any, ...]] = field(default_factory=set)
    lost: set[tuple[Any, ...]] = field(default_factory=set)


class Node:
    """One host and its agent."""

    patient = True
    """It takes no work until placement knows its boot. What is placed on a host while it is down
    belongs to the boot before: placement ends it, and places it elsewhere, when it hears of the
    new boot. A node that began it from an earlier answer would run it twice for a while."""

    def __init__(
        self,
        name: str,
        gpus: int,
        view: View,
        clock: SimClock,
        rng: Random,
        site: Site,
        placement: list[Replica],
        beat: Callable[[str], None],
    ) -> None:
        self.name, self.view, self.clock, self.rng, self.site = name, view, clock, rng, site
        self._placement, self._beat = placement, beat
        self.inventory = _inventory(name, gpus)
        self.epoch = 1
        self.boots = 0
        self.linked = self.alive = True
        self.calm = False
        self.bodies: dict[tuple[UUID, int], Body] = {}
        self.spool: deque[tuple[Outgoing, tuple[Any, ...] | None]] = deque()
        self.sent: list[Outgoing] = []
        self.withheld: list[tuple[Outgoing, tuple[Any, ...] | None]] = []
        self._acted = (0, 0)
        self._renewed_s = 0.0
        self._joined_s = -60.0
        self.boot()

    # -- life ---------------------------------------------------------------------------------

    def boot(self, disk_lost: bool = False) -> None:
        """Start the host: whatever ran is gone; without its disk the agent knows nothing."""
        for body in self.bodies.values():
            self._gone(body)
        # The spool is sent in order, so an offer of an earlier boot never comes after a later one.
        self.sent = [one for one in self.sent if not one.subject.endswith(".NodeJoined")]
        self.boots += 1
        self.boot_id = derived_id(0, self.name, self.boots)
        if disk_lost:
            self.site.lost.update(key for _, key in self.spool if key is not None)
            self.site.lost.update(key for _, key in self.withheld if key is not None)
            self.spool.clear()
            self.withheld.clear()
            self.bodies.clear()
            self.sent.clear()
            self._acted, self.epoch = (0, 0), self.epoch + 1
        self.alive = True
        self._join()

    def _join(self) -> None:
        self._joined_s = self.clock.steady_s()
        data = NodeJoined(boot_id=self.boot_id, inventory=self.inventory)
        self._say(Kind.NODE, CLUSTER, self.name, data, (self.boots, self._joined_s))

    def die(self) -> None:
        """Stop the host."""
        self.alive = False
        for body in self.bodies.values():
            self._gone(body)

    def _gone(self, body: Body) -> None:
        if body.running:
            body.running = False
            self.site.running.pop(body.given.run_id, None)

    async def run(self) -> None:
        """Live until cancelled."""
        sender = asyncio.create_task(self._send())
        try:
            while True:
                await asyncio.sleep(TICK_S * (0.5 + self.rng.random()))
                if self.alive:
                    self._tick()
        finally:
            sender.cancel()

    def _tick(self) -> None:
        now_s = self.clock.steady_s()
        if self.linked:
            self._beat(self.name)
            self._ask(now_s)
        for key in list(self.bodies):
            self._progress(self.bodies[key], now_s)

    # -- the spool ----------------------------------------------------------------------------

    async def _send(self) -> None:
        """Send in order, each until acknowledged; now and then something again."""
        while True:
            if not (self.spool and self.linked and self.alive):
                await asyncio.sleep(0.5)
                continue
            message, _ = self.spool[0]
            try:
                await self.view.publish(message)
            except LogError:
                await asyncio.sleep(RETRY_S * self.rng.random())
                continue
            if self.spool and self.spool[0][0] is message:
                self.spool.popleft()
                self.sent.append(message)
            await self._replay()

    async def _replay(self) -> None:
        faults = self.view.log.faults
        if faults.on and self.rng.random() < faults.replay:
            try:
                await self.view.publish(self.rng.choice(self.sent))
            except LogError:
                return

    def _say(
        self,
        kind: Kind,
        namespace: str,
        id_: str,
        data: EventData,
        unique: tuple[Any, ...],
        role: Role = Role.NODE,
        key: tuple[Any, ...] | None = None,
    ) -> None:
        event_id = derived_id(self.clock.now_ms(), self.name, self.epoch, id_, *unique)
        subject = Subject(namespace, kind, id_, role, self.name, type(data).__name__)
        body = encode(Envelope(id=event_id, type=data.type_name(), data=data))
        self.spool.append((Outgoing(str(subject), body, str(event_id)), key))

    def _report(self, body: Body, data: EventData, *unique: Any) -> None:
        given = body.given
        about = (Kind.TASK, body.namespace, str(given.task_id))
        self._say(*about, data, (given.run_id, given.attempt, type(data).__name__, *unique))

    # -- placement's wishes -------------------------------------------------------------------

    def _ask(self, now_s: float) -> None:
        active = [one for one in self._placement if one.up and one.shell.active]
        talking = [one for one in active if not one.view.paused]
        if not talking or self.view.log.away:
            return
        shell = self.rng.choice(talking).shell
        at = (shell.epoch, shell.folded.sequence)
        ask = Ask(CLUSTER, self.name, self.clock.now_ms(), shell.folded.sequence)
        desired = queries.desired(shell.folded.state, None, ask)
        if at < self._acted:
            return
        self._acted, self._renewed_s = at, now_s
        node = shell.folded.state.nodes.get(self.name)
        other_boot = node is not None and node.boot_id != self.boot_id
        if not desired.known or (self.patient and other_boot):
            if now_s - self._joined_s > 10:
                self._join()
            return
        self._act({(one.run_id, one.attempt): one for one in desired.attempts}, now_s)

    def _act(self, wanted: dict[tuple[UUID, int], DesiredAttempt], now_s: float) -> None:
        for key, given in wanted.items():
            body = self.bodies.get(key)
            if body is None:
                self._begin(key, given, now_s)
            elif body.running:
                body.granted = given.granted_tokens
                if given.stop is not None and body.stop_at_s is None:
                    self._stop(body, given.stop.outcome, now_s)
        for key, body in list(self.bodies.items()):
            if key in wanted:
                continue
            if body.running:
                if body.stop_at_s is None:
                    self._stop(body, Outcome.NODE_LOST, now_s)
            elif body.reported:
                del self.bodies[key]

    def _stop(self, body: Body, outcome: Outcome, now_s: float) -> None:
        body.stop_at_s = now_s + self.rng.random() * 5
        body.stop_outcome = outcome

    def _begin(self, key: tuple[UUID, int], given: DesiredAttempt, now_s: float) -> None:
        """Start, refuse, or end what is to end before it began; wait where a card is taken."""
        namespace = given.spec.namespace
        calm = self.calm
        body = Body(
            given=given,
            namespace=namespace,
            started_ms=self.clock.now_ms(),
            ends_at_s=now_s + self.rng.choice((1, 5, 20, 60, 1 if calm else 120)),
            outcome=Outcome.FAILED if self.rng.random() < 0.2 else Outcome.SUCCEEDED,
            hunger=self.rng.choice((0, 10, 500, 9000)),
            counted_to_ms=self.clock.now_ms(),
            granted=given.granted_tokens,
        )
        if given.stop is not None:
            body.running, body.started_ms = False, None
            self.bodies[key] = body
            self._finish(body, given.stop.outcome)
        elif not calm and self.rng.random() < 0.04:
            body.running, body.reported = False, True
            self.bodies[key] = body
            refusal = {"run_id": given.run_id, "attempt": given.attempt, "fence": given.fence}
            self._report(body, OrderRefused(**refusal, reason=REFUSED))
        elif self._room(given):
            self._run(key, body)

    def _room(self, given: DesiredAttempt) -> bool:
        """Whether no body of an ended attempt still sits on a wanted card."""
        wanted = {slot.gpu_uuid for slot in given.slots}
        here = [one for one in self.bodies.values() if one.running and one.stop_at_s is not None]
        return not any(wanted & {slot.gpu_uuid for slot in one.given.slots} for one in here)

    def _run(self, key: tuple[UUID, int], body: Body) -> None:
        given = body.given
        other = self.site.running.get(given.run_id)
        if other is not None:
            raise Violation(f"I4: run {given.run_id} runs on {other} and on {self.name} at once")
        self.site.running[given.run_id] = self.name
        self.bodies[key] = body
        data = TaskStarted(
            run_id=given.run_id,
            attempt=given.attempt,
            fence=given.fence,
            started_at_ms=self.clock.now_ms(),
        )
        self._report(body, data)

    # -- bodies -------------------------------------------------------------------------------

    def _progress(self, body: Body, now_s: float) -> None:
        if not body.running:
            if not body.reported:
                self._finish(body, Outcome.NODE_LOST)
            return
        requeued = body.given.spec.on_node_loss is OnNodeLoss.REQUEUE
        if requeued and now_s - self._renewed_s >= LEASE_TTL_S - 2 * TICK_S:
            body.stop_at_s, body.stop_outcome = now_s, Outcome.NODE_LOST  # the watchdog
        stopped = body.stop_at_s is not None and now_s >= body.stop_at_s
        over = now_s >= body.ends_at_s
        if stopped or over or self.rng.random() < 0.3:
            self._count(body)
        if stopped or over:
            self._gone(body)
            outcome = body.outcome if over or body.stop_outcome is None else body.stop_outcome
            self._finish(body, outcome)

    def _count(self, body: Body) -> None:
        now_ms = self.clock.now_ms()
        held_ms = now_ms - body.counted_to_ms
        if held_ms <= 0:
            return
        given, spec = body.given, body.given.spec
        interval = {"from_ms": body.counted_to_ms, "duration_ms": held_ms}
        self._use(body, Meter.CPU, spec.cpu_milli * held_ms, CpuUsed, {
            **interval, "cpu_milli": spec.cpu_milli,
        })  # fmt: skip
        if given.slots:
            milli = sum(slot.gpu_milli for slot in given.slots)
            self._use(body, Meter.GPU, milli * held_ms, GpuUsed, {
                **interval, "gpu_milli": milli, "gpu_type": given.slots[0].gpu_type,
            })  # fmt: skip
        self._tokens(body, held_ms)
        body.counted_to_ms = now_ms

    def _tokens(self, body: Body, held_ms: int) -> None:
        want = int(min(body.spendable, body.hunger * held_ms / 1000))
        if want > 0:
            cached = self.rng.randint(0, want)
            classes = TokenClasses(input_cache_read=cached, output_text=want - cached)
            data = {"model": self.rng.choice(MODELS), "classes": classes}
            self._use(body, Meter.TOKENS, want, TokensUsed, data)
            body.tokens_used += want
        granted = body.granted
        if granted is not None and granted != body.asked_at_grant:
            lease = granted - body.given.lease_base_tokens
            if body.tokens_used >= 0.8 * lease:
                self._top_up(body, granted)

    def _top_up(self, body: Body, granted: int) -> None:
        body.asked_at_grant = granted
        given = body.given
        data = LeaseTopUpRequested(
            run_id=given.run_id,
            attempt=given.attempt,
            fence=given.fence,
            meter=Meter.TOKENS,
            used=body.tokens_used,
            granted_tokens=granted,
        )
        self._report(body, data, granted)

    def _use(
        self, body: Body, meter: Meter, amount: int, kind: type[Any], data: dict[str, Any]
    ) -> None:
        """Write one record into the spool under the next number."""
        given = body.given
        count = body.meters.setdefault((meter, self.epoch), Count())
        count.last_number += 1
        count.used += amount
        at_ms = data.get("from_ms", self.clock.now_ms())
        key = (str(given.run_id), given.attempt, self.name, meter.value, self.epoch)
        record = kind(
            record_id=derived_id(at_ms, *key, count.last_number),
            run_id=given.run_id,
            attempt=given.attempt,
            fence=given.fence,
            epoch=self.epoch,
            number=count.last_number,
            **data,
        )
        full = (*key, count.last_number)
        self.site.produced.add(full)
        about = (Kind.TASK, body.namespace, str(given.task_id))
        self._say(*about, record, (meter, count.last_number), Role.PROBE, full)
        faults = self.view.log.faults
        if faults.on and self.rng.random() < faults.withheld:
            self.withheld.append(self.spool.pop())

    def let_go(self) -> None:
        """Send half of what was withheld, long after; the other half never."""
        for message, key in self.withheld:
            if key is not None and self.rng.random() < 0.5:
                self.site.lost.add(key)
            else:
                self.spool.append((message, key))
        self.withheld.clear()

    def restart_probe(self) -> None:
        """Begin another epoch: what is counted from now on is numbered from 1 again."""
        self.epoch += 1

    def _finish(self, body: Body, outcome: Outcome) -> None:
        """Say that the body is gone, and where its meters stood."""
        body.reported = True
        ends = tuple(
            MeterEnd(
                meter=meter,
                epoch=epoch,
                used=count.used if meter is Meter.TOKENS else count.used // 1000,
                last_number=count.last_number,
            )
            for (meter, epoch), count in body.meters.items()
        )
        data = TaskFinished(
            run_id=body.given.run_id,
            attempt=body.given.attempt,
            fence=body.given.fence,
            outcome=outcome,
            exit_code=1 if outcome is Outcome.FAILED else 0,
            message="",
            started_at_ms=body.started_ms,
            finished_at_ms=self.clock.now_ms(),
            used=ends,
        )
        self._report(body, data)


def _inventory(name: str, gpus: int) -> Inventory:
    kinds = (("A100", 80 * 1024), ("H100", 80 * 1024))
    cards = tuple(
        Gpu(uuid=f"GPU-{name}-{at}", type=kinds[at % 2][0], memory_mib=kinds[at % 2][1],
            simulated=True)
        for at in range(gpus)
    )  # fmt: skip
    return Inventory(
        gpus=cards, cpu_milli=16_000, memory_mib=64 * 1024, executor="sim", agent_version="1"
    )
