"""A small world around the decider: sentences read given / when / then."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from uuid import UUID, uuid4

import pytest
from orca_billing.commands import Command
from orca_billing.decider import DECIDER
from orca_billing.state import STATE, RunCost, State
from orca_runtime.clickhouse import connect
from orca_runtime.recorded import Recorded, Unreadable
from orca_runtime.tables import state_bytes, state_digest
from orca_runtime.testing import EPOCH, START_MS, Scenario, an_input, scenario
from orca_runtime.testing_clickhouse import running_clickhouse
from orca_schemas.errors import MalformedError
from orca_schemas.events.admin import PriceSet, PriceTier
from orca_schemas.events.admission import QuotaReserved
from orca_schemas.events.billing import Charged
from orca_schemas.events.metering import UsageSettled
from orca_schemas.identifiers import CLUSTER, derived_id, name_id
from orca_schemas.manifest import parse_manifest
from orca_schemas.positions import Position
from orca_schemas.spec import spec_of
from orca_schemas.subjects import Stream
from orca_schemas.values import AcceptedRecord, Meter, TokenClasses

TEAM = "team-alpha"
RUN = derived_id(START_MS, "run", "a")
TASK = str(name_id("task", "a"))


def record(meter: str, number: int = 1, at_ms: int = START_MS, **said: Any) -> AcceptedRecord:
    """A record that metering accepted: 10 tokens, a GPU for a second, or a core for a second."""
    body: dict[str, Any] = {"model": "", "milli": 1000, "duration_ms": 1000}
    if meter == "tokens":
        body = {"model": "llama", "classes": TokenClasses(input_uncached=7, output_text=3)}
    if meter == "gpu":
        body["model"] = "A100"
    head = {"attempt": 1, "node": "node-1", "epoch": 0, "number": number, "at_ms": at_ms}
    id_ = derived_id(at_ms, RUN, meter, number)
    return AcceptedRecord(record_id=id_, meter=Meter(meter), **{**head, **body, **said})


def settled(*records: AcceptedRecord, final: bool = False, run_id: UUID = RUN) -> UsageSettled:
    """Metering settles these records."""
    return UsageSettled(run_id=run_id, records=records, totals=(), used_tokens=0, final=final)


def price_set(
    sku: str, price_micro_usd: int, effective_at_ms: int = START_MS, from_quantity: int = 0
) -> PriceSet:
    """An operator's price."""
    tier = PriceTier(from_quantity=from_quantity, price_micro_usd=price_micro_usd)
    return PriceSet(sku=sku, tiers=(tier,), effective_at_ms=effective_at_ms)


def priced(data: PriceSet, sequence: int, received_at_ms: int, **where: Any) -> Recorded:
    """The broker has it. By default the subject is as it must be."""
    options = {"namespace": CLUSTER, "id_": str(name_id("price", data.sku)), **where}
    return an_input(Stream.ADMIN, sequence, data, party="root", time_ms=received_at_ms, **options)


def reserved(user: str = "alice", name: str = "train", run_id: UUID = RUN) -> Recorded:
    """Admission reserved the run, whose owner this is."""
    manifest = parse_manifest(
        {
            "apiVersion": "orca.ai/v1",
            "kind": "AITask",
            "metadata": {"name": name, "namespace": TEAM},
            "spec": {"taskType": "training", "image": "busybox:1.36", "command": ["true"]},
        }
    )
    data = QuotaReserved(
        run_id=run_id,
        accounts=(TEAM,),
        held=(),
        granted_tokens=None,
        spec=spec_of(manifest, user),
    )
    return an_input(Stream.ADMISSION, 1, data, id_=TASK)


@dataclass(frozen=True)
class World:
    """The decider, its state and how many inputs it was given; each sentence gives a new one."""

    scenario: Scenario[State, Command]
    inputs: int = 0

    def after(self, given: Recorded) -> World:
        """Feed an input."""
        return World(self.scenario.when(given), self.inputs + 1)

    def priced(
        self, sku: str, price_micro_usd: int, effective_at_ms: int = START_MS, **where: Any
    ) -> World:
        """An operator sets a price, and it arrives in the moment that it takes effect."""
        received_at_ms = where.pop("received_at_ms", effective_at_ms)
        data = price_set(sku, price_micro_usd, effective_at_ms, where.pop("from_quantity", 0))
        return self.after(priced(data, self.inputs + 1, received_at_ms, **where))

    def settles(self, *records: AcceptedRecord, final: bool = False, run_id: UUID = RUN) -> World:
        """Metering settles records."""
        data = settled(*records, final=final, run_id=run_id)
        return self.after(an_input(Stream.METERING, self.inputs + 1, data, id_=TASK))

    def used(self, meter: str, *, final: bool = False, **said: Any) -> World:
        """Metering settles one record."""
        return self.settles(record(meter, self.inputs + 1, **said), final=final)

    def later(self, ms: int) -> World:
        """Move the clock."""
        return World(self.scenario.at(self.scenario.now_ms + ms), self.inputs)

    def due(self) -> World:
        """Let the first timer fire, at its time."""
        first = self.scenario.due()[0]
        return World(self.scenario.at(first.at_ms).when(first), self.inputs)

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
    def charged(self) -> list[Charged]:
        """Every charge so far."""
        return [e.data for e in self.scenario.log if isinstance(e.data, Charged)]

    @property
    def run(self) -> RunCost:
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

    TEAM, RUN, TASK = TEAM, RUN, TASK
    record = staticmethod(record)
    settled = staticmethod(settled)
    price_set = staticmethod(price_set)
    priced = staticmethod(priced)
    reserved = staticmethod(reserved)

    @staticmethod
    def rubbish(stream: Stream = Stream.METERING) -> Unreadable:
        """A message that is no event."""
        position = Position(stream, EPOCH, 7)
        error = MalformedError("body", "{", "send JSON")
        return Unreadable(position, "orca." + "x" * 2000, 0, error, sha256(b"{").hexdigest())


@pytest.fixture(scope="session")
def say() -> type[Say]:
    return Say


@pytest.fixture(scope="session")
def world() -> World:
    return World(scenario(DECIDER))


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
