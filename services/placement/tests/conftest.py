"""A small world around the decider: tasks have short names, sentences read given / when / then."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import pytest
from orca_placement.cluster import Node
from orca_placement.commands import Command, observe_beat, observe_silence
from orca_placement.decider import DECIDER
from orca_placement.state import Run, State
from orca_runtime.recorded import Due, Recorded
from orca_runtime.testing import START_MS, Scenario, an_input, scenario
from orca_schemas.asks import Desired, DesiredQuery, TaskQuery, TaskRow
from orca_schemas.events.admission import LeaseExtended, QuotaReserved, TaskStopRequested
from orca_schemas.events.node import NodeJoined, OrderRefused, TaskFinished, TaskStarted
from orca_schemas.events.placement import Placed, PlacementDeferred, Released
from orca_schemas.identifiers import CLUSTER, derived_id, name_id
from orca_schemas.manifest import OnNodeLoss, Priority, Sharing, TaskType
from orca_schemas.model import EventData
from orca_schemas.spec import GpuSpec, TaskSpec
from orca_schemas.subjects import Stream
from orca_schemas.values import Gpu, Inventory, Meter, MeterEnd, Outcome, Reason, ReasonCode

TEAM = "team-alpha"
CARD_MIB = 81920
GPU_TYPE = "A100"


@dataclass(frozen=True)
class Asker:
    """Who asks, and the own sequence that the answer reflects."""

    namespace: str = CLUSTER
    user: str = "admin"
    now_ms: int = START_MS
    sequence: int = 7


def task_id(task: str) -> str:
    """The task id of a short name."""
    return str(name_id("task", task))


def run_id(task: str) -> UUID:
    """The run id of a short name."""
    return derived_id(START_MS, "run", task)


def a_gpu(count: int = 1, memory_mib: int | None = None, percent: int = 100) -> GpuSpec:
    """Whole cards, or with ``memory_mib`` shares of ``percent``."""
    sharing = Sharing.EXCLUSIVE if memory_mib is None else Sharing.SHARED
    return GpuSpec(
        type=GPU_TYPE, count=count, memory_mib=memory_mib, compute_percent=percent, sharing=sharing
    )


def a_spec(task: str, **fields: Any) -> TaskSpec:
    """A small CPU task in team-alpha, but for ``fields``."""
    usual: dict[str, Any] = {
        "namespace": TEAM, "name": task, "user": "alice", "task_type": TaskType.BATCH, "gpu": None,
        "cpu_milli": 1000, "memory_mib": 1024, "token_quota": None, "image": "busybox:1.36",
        "command": ("true",), "env": (), "backoff_limit": 0, "on_node_loss": OnNodeLoss.WAIT,
        "active_deadline_ms": None, "priority": Priority.NORMAL, "queue": "default",
        "estimated_duration_ms": None, "report_interval_ms": 30_000,
    }  # fmt: skip
    return TaskSpec(**(usual | fields))


def an_inventory(
    name: str,
    gpus: int = 0,
    cpu_milli: int = 16_000,
    memory_mib: int = 65_536,
    card: str = GPU_TYPE,
) -> Inventory:
    """A node's inventory with ``gpus`` simulated cards of 80 GiB."""
    cards = tuple(
        Gpu(uuid=f"GPU-{name}-{index}", type=card, memory_mib=CARD_MIB, simulated=True)
        for index in range(gpus)
    )
    return Inventory(
        gpus=cards, cpu_milli=cpu_milli, memory_mib=memory_mib, executor="process",
        agent_version="0.1.0",
    )  # fmt: skip


@dataclass(frozen=True)
class World:
    """The decider, its state and how many inputs it was given; each sentence gives a new one."""

    scenario: Scenario[State, Command]
    inputs: int = 0

    # -- given and when -----------------------------------------------------------------------

    def when(self, given: Recorded | Due | Command) -> World:
        """Feed one thing."""
        return World(self.scenario.when(given), self.inputs + 1)

    def _told(self, stream: Stream, id_: str, data: EventData, **named: Any) -> World:
        return self.when(an_input(stream, self.inputs + 1, data, id_=id_, **named))

    def later(self, ms: int) -> World:
        """Move the clock; fires nothing."""
        return replace(self, scenario=self.scenario.at(self.scenario.now_ms + ms))

    def node(self, name: str, boot: int = 1, speaker: str | None = None, **sizes: Any) -> World:
        """A node joins; ``sizes`` as an_inventory takes them."""
        joined = NodeJoined(
            boot_id=derived_id(0, "boot", name, boot), inventory=an_inventory(name, **sizes)
        )
        return self._told(Stream.NODE, name, joined, namespace=CLUSTER, party=speaker or name)

    def submit(self, task: str, tokens: int | None = None, **fields: Any) -> World:
        """Quota is reserved for a task; ``tokens`` are granted."""
        reserved = QuotaReserved(
            run_id=run_id(task), accounts=(TEAM,), held=(), granted_tokens=tokens,
            spec=a_spec(task, **fields),
        )  # fmt: skip
        return self._told(Stream.ADMISSION, task_id(task), reserved)

    def stop(self, task: str, outcome: Outcome = Outcome.CANCELLED) -> World:
        """Admission wants the run to end."""
        request = TaskStopRequested(run_id=run_id(task), outcome=outcome, message="by alice")
        return self._told(Stream.ADMISSION, task_id(task), request)

    def extend(self, task: str, tokens: int) -> World:
        """Admission grants more tokens."""
        extended = LeaseExtended(run_id=run_id(task), granted_tokens=tokens)
        return self._told(Stream.ADMISSION, task_id(task), extended)

    def start(self, task: str, started_at_ms: int | None = None, **wrong: Any) -> World:
        """The node says that the attempt runs; ``wrong`` falsifies attempt, fence or party."""
        party, named = self._attempt(task, wrong)
        at_ms = self.scenario.now_ms if started_at_ms is None else started_at_ms
        started = TaskStarted(run_id=run_id(task), started_at_ms=at_ms, **named)
        return self._told(Stream.NODE, task_id(task), started, party=party)

    def finish(
        self, task: str, outcome: Outcome = Outcome.SUCCEEDED, tokens: int | None = 0, **wrong: Any
    ) -> World:
        """The node says that the attempt is over, having used ``tokens`` (None: unknown)."""
        party, named = self._attempt(task, wrong)
        used = () if tokens is None else (tokens_end(tokens),)
        finished = TaskFinished(
            run_id=run_id(task), outcome=outcome, exit_code=0, message="", started_at_ms=None,
            finished_at_ms=self.scenario.now_ms, used=used, **named,
        )  # fmt: skip
        return self._told(Stream.NODE, task_id(task), finished, party=party)

    def refuse(self, task: str, **wrong: Any) -> World:
        """The node cannot carry out the assignment."""
        party, named = self._attempt(task, wrong)
        reason = Reason(code=ReasonCode.UNSUPPORTED, message="no such executor")
        refused = OrderRefused(run_id=run_id(task), reason=reason, **named)
        return self._told(Stream.NODE, task_id(task), refused, party=party)

    def _attempt(self, task: str, wrong: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """The party and the attempt of the run's last Placed, or what ``wrong`` says instead."""
        placed = [
            event
            for event in self.scenario.log
            if isinstance(event.data, Placed) and event.data.run_id == run_id(task)
        ][-1]
        data = placed.data
        assert isinstance(data, Placed)
        named = {"party": data.node, "attempt": data.attempt, "fence": str(placed.position)} | wrong
        return named.pop("party"), named

    def silent(self, node: str, ms: int = 30_000) -> World:
        """The shell has not heard the node."""
        return self.when(observe_silence(node, ms))

    def heard(self, node: str) -> World:
        """The shell hears the node."""
        return self.when(observe_beat(node))

    def fire(self, kind: str) -> World:
        """Let the clock run to the first timer of a kind, and fire it."""
        due = next(one for one in self.scenario.due() if one.kind == kind)
        now_ms = max(self.scenario.now_ms, due.at_ms)
        return World(self.scenario.at(now_ms).when(due), self.inputs)

    def settle(self) -> World:
        """Fire what is due now, until nothing is."""
        world = self
        while due := [one for one in world.scenario.due() if one.at_ms <= world.scenario.now_ms]:
            world = world.when(due[0])
        return world

    # -- then ---------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The state reached."""
        return self.scenario.state

    @property
    def now_ms(self) -> int:
        """The clock."""
        return self.scenario.now_ms

    @property
    def events(self) -> tuple[Any, ...]:
        """What the last step said."""
        return self.scenario.events

    @property
    def names(self) -> list[str]:
        """The names of what the last step said; a note is its fact."""
        return [
            event.fact.kind if type(event).__name__ == "Noted" else type(event).__name__
            for event in self.events
        ]

    @property
    def timers(self) -> list[str]:
        """The kinds of all timers, earliest first."""
        return [due.kind for due in self.scenario.due()]

    def said(self, name: str) -> Any:
        """The one event of this name that the last step said."""
        (found,) = (event for event in self.events if type(event).__name__ == name)
        return found

    def party_of(self, name: str) -> str:
        """Whom the last event of this name addresses."""
        return next(e.subject.party for e in self.scenario.log[::-1] if e.subject.event == name)

    def run(self, task: str) -> Run:
        """The run of a task."""
        return self.state.runs[str(run_id(task))]

    def where(self, task: str) -> str | None:
        """The node of the live attempt."""
        attempt = self.run(task).attempt
        return attempt.node if attempt else None

    def on(self, node: str) -> Node:
        """A node."""
        return self.state.nodes[node]

    def codes(self, task: str) -> set[str]:
        """The reason codes last said of the run."""
        said = [
            event.data.reasons
            for event in self.scenario.log
            if isinstance(event.data, PlacementDeferred | Released)
            and event.data.run_id == run_id(task)
        ]
        return {reason.code.value for reason in said[-1]}

    def desired(
        self, node: str, after: UUID | None = None, boot_id: UUID | None = None, **asker: Any
    ) -> Desired:
        """What the node is told."""
        from orca_placement.queries import desired  # noqa: PLC0415

        query = DesiredQuery(after=after, boot_id=boot_id)
        return desired(self.state, query, Asker(**({"user": node} | asker)))  # type: ignore[arg-type]

    def rows(self, **named: Any) -> list[TaskRow]:
        """What who asks for tasks is told."""
        from orca_placement.queries import tasks  # noqa: PLC0415

        asker = Asker(namespace=named.pop("asker", CLUSTER), now_ms=self.now_ms)
        return list(tasks(self.state, TaskQuery(**named), asker).tasks)  # type: ignore[arg-type]


def tokens_end(tokens: int) -> MeterEnd:
    """Where a token meter stood."""
    return MeterEnd(meter=Meter.TOKENS, epoch=0, used=tokens, last_number=int(tokens > 0))


def overlaps(state: State) -> list[str]:
    """What breaks I4: cards over-full or not alone, nodes over-full, sums that are not the sums."""
    return [fault for node in state.nodes.values() for fault in _faults(state, node)]


def _faults(state: State, node: Node) -> list[str]:
    live = [state.runs[key] for key in node.runs]
    slots = [slot for run in live for slot in run.attempt.slots]  # type: ignore[union-attr]
    faults = []
    for gpu in node.inventory.gpus:
        mine = [slot for slot in slots if slot.gpu_uuid == gpu.uuid]
        if sum(slot.gpu_milli for slot in mine) > 1000:
            faults.append(f"{gpu.uuid}: milli")
        if sum(slot.memory_mib for slot in mine) > gpu.memory_mib:
            faults.append(f"{gpu.uuid}: memory")
        if len(mine) > 1 and any(slot.exclusive for slot in mine):
            faults.append(f"{gpu.uuid}: exclusive is not alone")
        pool = next(pool for pool in node.pools if pool.type == gpu.type)
        card = next(card for card in pool.cards if card.uuid == gpu.uuid)
        if card.milli_free != 1000 - sum(slot.gpu_milli for slot in mine):
            faults.append(f"{gpu.uuid}: free share is wrong")
    for run in live:
        assert run.attempt is not None
        if run.attempt.node != node.name:
            faults.append(f"{run.key}: lives on {run.attempt.node}, listed on {node.name}")
        if len({slot.gpu_uuid for slot in run.attempt.slots}) != len(run.attempt.slots):
            faults.append(f"{run.key}: one card twice")
    cpu_milli = node.inventory.cpu_milli - sum(run.spec.cpu_milli for run in live)
    memory_mib = node.inventory.memory_mib - sum(run.spec.memory_mib for run in live)
    if min(cpu_milli, memory_mib) < 0:
        faults.append(f"{node.name}: over-full")
    if (cpu_milli, memory_mib) != (node.cpu_free_milli, node.memory_free_mib):
        faults.append(f"{node.name}: free amounts are wrong")
    if max(Counter(node.runs).values(), default=1) > 1:
        faults.append(f"{node.name}: a run is there twice")
    return faults


@pytest.fixture
def world() -> World:
    """Nothing known yet."""
    return World(scenario(DECIDER))


@pytest.fixture
def gpu_spec() -> Any:
    """Builds what is asked of GPUs: ``gpu_spec(count, memory_mib, percent)``."""
    return a_gpu


@pytest.fixture
def faults() -> Any:
    """Checks I4: ``faults(state)`` is what breaks it."""
    return overlaps
