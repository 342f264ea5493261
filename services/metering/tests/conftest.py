"""A small world around the decider: sentences read given / when / then."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from uuid import UUID, uuid4

import pytest
from orca_metering.commands import Command
from orca_metering.decider import DECIDER
from orca_metering.state import STATE, Run, State
from orca_runtime.clickhouse import connect
from orca_runtime.recorded import Recorded, Unreadable
from orca_runtime.tables import state_bytes, state_digest
from orca_runtime.testing import EPOCH, START_MS, Scenario, an_input, scenario
from orca_runtime.testing_clickhouse import running_clickhouse
from orca_schemas.errors import MalformedError
from orca_schemas.events.metering import UsageSettled
from orca_schemas.events.placement import AttemptEnded, Placed, Released
from orca_schemas.events.usage import CpuUsed, GpuUsed, TokensUsed
from orca_schemas.identifiers import derived_id, name_id
from orca_schemas.manifest import parse_manifest
from orca_schemas.model import EventData
from orca_schemas.positions import Position
from orca_schemas.spec import TaskSpec, spec_of
from orca_schemas.subjects import Stream
from orca_schemas.values import Meter, MeterEnd, Outcome, Slot, TokenClasses

TEAM = "team-alpha"
RUN = derived_id(START_MS, "run", "a")
TASK = str(name_id("task", "a"))
NODE = "node-1"


def a_spec() -> TaskSpec:
    """A task that asks for nothing in particular."""
    manifest = parse_manifest(
        {
            "apiVersion": "orca.ai/v1",
            "kind": "AITask",
            "metadata": {"name": "train", "namespace": TEAM},
            "spec": {"taskType": "training", "image": "busybox:1.36", "command": ["true"]},
        }
    )
    return spec_of(manifest, "alice")


def fence_of(attempt: int) -> str:
    """Where ``placed`` puts an attempt's Placed: at the sequence of its number."""
    return str(Position(Stream.PLACEMENT, EPOCH, attempt))


def placed(attempt: int = 1, node: str = NODE, run_id: UUID = RUN, **where: Any) -> Recorded:
    """Placement puts an attempt on a node."""
    data = Placed(
        run_id=run_id,
        spec=a_spec(),
        node=node,
        slots=(Slot(gpu_uuid="g", gpu_type="A100", gpu_milli=1000, memory_mib=1, exclusive=True),),
        attempt=attempt,
        granted_tokens=None,
        lease_base_tokens=0,
    )
    return an_input(Stream.PLACEMENT, attempt, data, id_=where.pop("id_", TASK), **where)


def ends(**last_numbers: int) -> tuple[MeterEnd, ...]:
    """The last number of each meter, epoch 0: ``ends(tokens=3)``."""
    return tuple(
        MeterEnd(meter=Meter(meter), epoch=0, used=0, last_number=last)
        for meter, last in last_numbers.items()
    )


def attempt_ended(attempt: int = 1, used: tuple[MeterEnd, ...] = ()) -> Recorded:
    """An attempt is over and another follows."""
    data = AttemptEnded(
        run_id=RUN,
        attempt=attempt,
        node=NODE,
        outcome=Outcome.PREEMPTED,
        exit_code=None,
        used=used,
        retry_at_ms=START_MS,
    )
    return an_input(Stream.PLACEMENT, 100 + attempt, data, id_=TASK)


def released(
    attempt: int = 1, used: tuple[MeterEnd, ...] = (), outcome: Outcome = Outcome.SUCCEEDED
) -> Recorded:
    """The run is over; attempt 0: it was never placed."""
    data = Released(
        run_id=RUN,
        outcome=outcome,
        exit_code=0,
        attempt=attempt,
        node=NODE if attempt else None,
        used=used,
    )
    return an_input(Stream.PLACEMENT, 1000, data, id_=TASK)


def usage(meter: str, number: int, at_ms: int = START_MS, **said: Any) -> EventData:
    """What a probe says: 10 tokens, a GPU for a second, or a core for a second."""
    attempt, epoch = said.pop("attempt", 1), said.pop("epoch", 0)
    head = {
        "record_id": derived_id(at_ms, RUN, attempt, meter, epoch, number),
        "run_id": RUN,
        "attempt": attempt,
        "fence": fence_of(attempt),
        "epoch": epoch,
        "number": number,
    }
    if meter == "tokens":
        body = {"model": "llama", "classes": TokenClasses(input_uncached=7, output_text=3)}
        return TokensUsed(**{**head, **body, **said})
    held = {"from_ms": at_ms, "duration_ms": 1000}
    if meter == "gpu":
        return GpuUsed(**{**head, **held, "gpu_type": "A100", "gpu_milli": 1000, **said})
    return CpuUsed(**{**head, **held, "cpu_milli": 500, **said})


def heard(data: EventData, received_at_ms: int = START_MS, **where: Any) -> Recorded:
    """The broker has it. By default it is the run's own task and node that speak."""
    options = {"id_": TASK, "party": NODE, "time_ms": received_at_ms, **where}
    return an_input(Stream.USAGE, 1, data, **options)


@dataclass(frozen=True)
class World:
    """The decider and its state; each sentence gives a new world."""

    scenario: Scenario[State, Command]

    def after(self, *inputs: Recorded) -> World:
        """Feed inputs."""
        return World(self.scenario.given(*inputs))

    def says(self, meter: str, number: int, **said: Any) -> World:
        """The probe reports a record and it arrives at once."""
        at_ms = said.pop("at_ms", self.scenario.now_ms)
        received_at_ms = said.pop("received_at_ms", at_ms)
        return self.after(heard(usage(meter, number, at_ms, **said), received_at_ms))

    def later(self, ms: int) -> World:
        """Move the clock."""
        return World(self.scenario.at(self.scenario.now_ms + ms))

    def due(self) -> World:
        """Let the first timer fire, at its time."""
        first = self.scenario.due()[0]
        return World(self.scenario.at(first.at_ms).when(first))

    @property
    def timers(self) -> list[tuple[str, int]]:
        """Kind and time of each timer."""
        return [(due.kind, due.at_ms) for due in self.scenario.due()]

    @property
    def last(self) -> Any:
        """The one event of the last step."""
        (event,) = self.scenario.events
        return event

    @property
    def said(self) -> str:
        """The name of the last event; of a Noted, of its fact."""
        return self.last.fact.kind if hasattr(self.last, "fact") else type(self.last).__name__

    @property
    def settled(self) -> list[UsageSettled]:
        """Every settlement so far."""
        return [e.data for e in self.scenario.log if isinstance(e.data, UsageSettled)]

    @property
    def run(self) -> Run:
        """The run's state."""
        return self.scenario.state.runs[RUN]

    def refolded(self) -> str:
        """The digest of a fold of the whole own stream from nothing."""
        state = DECIDER.initial
        for event in self.scenario.log:
            state = DECIDER.evolve(state, event)
        return state_digest(STATE, state)

    def digest(self) -> str:
        """The digest of the live state."""
        return state_digest(STATE, self.scenario.state)

    def thawed(self) -> State:
        """The state, written as a snapshot and read back."""
        return STATE.validate_json(state_bytes(STATE, self.scenario.state))


class Say:
    """The words of these tests."""

    TEAM, RUN, TASK, NODE = TEAM, RUN, TASK, NODE
    placed = staticmethod(placed)
    ends = staticmethod(ends)
    attempt_ended = staticmethod(attempt_ended)
    released = staticmethod(released)
    usage = staticmethod(usage)
    heard = staticmethod(heard)
    fence_of = staticmethod(fence_of)

    @staticmethod
    def rubbish() -> Unreadable:
        """A message that is no event."""
        position = Position(Stream.USAGE, EPOCH, 7)
        error = MalformedError("body", "{", "send JSON")
        return Unreadable(position, "orca." + "x" * 2000, 0, error, sha256(b"{").hexdigest())


@pytest.fixture(scope="session")
def say() -> type[Say]:
    return Say


@pytest.fixture(scope="session")
def empty() -> World:
    return World(scenario(DECIDER))


@pytest.fixture(scope="session")
def world(empty: World) -> World:
    """Attempt 1 of the run is placed on its node."""
    return empty.after(placed())


@pytest.fixture(scope="session")
def clickhouse_url() -> Iterator[str]:
    with running_clickhouse() as server:
        yield server.url


@dataclass
class Tables:
    """A database of this test alone: where it is, and a client to look into it."""

    url: str
    client: Any

    async def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The answer to a query."""
        answer = await self.client.query(query)
        return list(answer.result_rows)


@pytest.fixture
async def tables(clickhouse_url: str) -> AsyncIterator[Tables]:
    name = f"test_{uuid4().hex}"
    root = await connect(clickhouse_url)
    await root.command(f"CREATE DATABASE {name}")
    client = await connect(f"{clickhouse_url}/{name}")
    yield Tables(f"{clickhouse_url}/{name}", client)
    await client.close()
    await root.command(f"DROP DATABASE {name}")
    await root.close()
