"""A small world around the decider: tasks have short names, sentences read given / when / then."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any
from uuid import UUID

import pytest
from orca_admission.commands import Command
from orca_admission.decider import DECIDER
from orca_admission.ledger import period_of
from orca_admission.state import State
from orca_runtime.recorded import Recorded, Unreadable
from orca_runtime.testing import EPOCH, Scenario, an_input, scenario
from orca_schemas.errors import MalformedError
from orca_schemas.events.admin import NamespaceSet, QuotaSet
from orca_schemas.events.client import TaskCancelRequested, TaskSubmitted
from orca_schemas.events.common import Noted
from orca_schemas.events.metering import UsageSettled
from orca_schemas.events.node import LeaseTopUpRequested
from orca_schemas.events.placement import AttemptEnded, Placed, Released
from orca_schemas.identifiers import name_id
from orca_schemas.manifest import AITask, parse_manifest
from orca_schemas.model import EventData
from orca_schemas.positions import Position
from orca_schemas.spec import spec_of
from orca_schemas.subjects import ROLE_OF_STREAM, Kind, Stream, Subject
from orca_schemas.values import Meter, Outcome, Period

TEAM = "team-alpha"


def manifest(namespace: str = TEAM, priority: str = "normal", **resources: Any) -> AITask:
    """A manifest; resources by the manifest's own names (``cpu``, ``tokenQuota``, ``gpu``)."""
    return parse_manifest(
        {
            "apiVersion": "orca.ai/v1",
            "kind": "AITask",
            "metadata": {"name": "train", "namespace": namespace},
            "spec": {
                "taskType": "training",
                "image": "busybox:1.36",
                "command": ["true"],
                "resources": resources,
                "schedulerHints": {"priority": priority},
            },
        }
    )


def task_id(task: str) -> str:
    """The task id of a short name."""
    return str(name_id("task", task))


@dataclass(frozen=True)
class World:
    """The decider, its state and how many inputs it was given; each sentence gives a new one."""

    scenario: Scenario[State, Command]
    inputs: int = 0

    def _tell(self, stream: Stream, data: EventData, id_: str, **where: Any) -> World:
        number = self.inputs + 1
        time_ms = self.scenario.now_ms
        given = an_input(stream, number, data, id_=id_, time_ms=time_ms, **where)
        return World(self.scenario.when(given), number)

    def later(self, ms: int) -> World:
        return replace(self, scenario=self.scenario.at(self.scenario.now_ms + ms))

    def namespace(self, name: str = TEAM, admins: tuple[str, ...] = ("ada",)) -> World:
        data = NamespaceSet(admins=admins)
        return self._tell(Stream.ADMIN, data, name, namespace=name, party="root")

    def quota(
        self,
        dimension: str,
        limit: int | None,
        namespace: str = TEAM,
        account: str | None = None,
        period: Period | None = None,
    ) -> World:
        data = QuotaSet(dimension=dimension, limit=limit, period=period or period_of(dimension))
        return self._tell(Stream.ADMIN, data, account or namespace, namespace=namespace)

    def submit(
        self,
        task: str,
        user: str = "alice",
        namespace: str = TEAM,
        manifest_says: str | None = None,
        **wanted: Any,
    ) -> World:
        data = TaskSubmitted(manifest=manifest(manifest_says or namespace, **wanted))
        return self._tell(Stream.CLIENT, data, task_id(task), namespace=namespace, party=user)

    def submit_all(self, *tasks: str, **wanted: Any) -> World:
        world = self
        for task in tasks:
            world = world.submit(task, **wanted)
        return world

    def cancel(self, task: str, by: str = "alice", namespace: str = TEAM, why: str = "") -> World:
        data = TaskCancelRequested(reason=why)
        return self._tell(Stream.CLIENT, data, task_id(task), namespace=namespace, party=by)

    def garbage(
        self, event: str, id_: str, stream: Stream = Stream.CLIENT, kind: Kind = Kind.TASK
    ) -> World:
        number = self.inputs + 1
        subject = Subject(TEAM, kind, id_, ROLE_OF_STREAM[stream], "alice", event)
        message = Unreadable(
            Position(stream, EPOCH, number),
            str(subject),
            self.scenario.now_ms,
            MalformedError("data.manifest.spec.image", "(missing)", "add it"),
            sha256(b"{").hexdigest(),
        )
        return World(self.scenario.when(DECIDER.react_unreadable(message)), number)

    def run_id(self, task: str) -> UUID:
        return self.scenario.state.tasks[task_id(task)]

    def placed(self, task: str, node: str = "node-1", attempt: int = 1) -> World:
        data = Placed(
            run_id=self.run_id(task),
            spec=spec_of(manifest(), "alice"),
            node=node,
            slots=(),
            attempt=attempt,
            granted_tokens=None,
            lease_base_tokens=0,
        )
        return self._tell(Stream.PLACEMENT, data, task_id(task))

    def attempt_ended(self, task: str) -> World:
        data = AttemptEnded(
            run_id=self.run_id(task),
            attempt=1,
            node="node-1",
            outcome=Outcome.FAILED,
            exit_code=1,
            used=(),
            retry_at_ms=0,
        )
        return self._tell(Stream.PLACEMENT, data, task_id(task))

    def released(self, task: str, run: UUID | None = None) -> World:
        data = Released(
            run_id=run or self.run_id(task),
            outcome=Outcome.SUCCEEDED,
            exit_code=0,
            attempt=1,
            node="node-1",
            used=(),
        )
        return self._tell(Stream.PLACEMENT, data, task_id(task))

    def settled(self, task: str, used: int, final: bool = False, run: UUID | None = None) -> World:
        data = UsageSettled(
            run_id=run or self.run_id(task), records=(), totals=(), used_tokens=used, final=final
        )
        return self._tell(Stream.METERING, data, task_id(task))

    def top_up(
        self,
        task: str,
        used: int,
        node: str = "node-1",
        attempt: int = 1,
        fence: str | None = None,
        meter: Meter = Meter.TOKENS,
        run: UUID | None = None,
    ) -> World:
        known = self.scenario.state.runs.get(run or self.run_id(task))
        data = LeaseTopUpRequested(
            run_id=run or self.run_id(task),
            attempt=attempt,
            fence=fence or (known and known.fence) or f"PLACEMENT@{EPOCH}#1",
            meter=meter,
            used=used,
            granted_tokens=used,
        )
        return self._tell(Stream.NODE, data, task_id(task), party=node)

    def all_due(self) -> World:
        """Let every timer fall due that is due by now, until none is."""
        world = self
        while ready := [due for due in world.scenario.due() if due.at_ms <= world.now_ms]:
            world = replace(world, scenario=world.scenario.when(ready[0]))
        return world

    @property
    def now_ms(self) -> int:
        return self.scenario.now_ms

    @property
    def state(self) -> State:
        return self.scenario.state

    @property
    def log(self) -> tuple[Recorded, ...]:
        return self.scenario.log

    @property
    def said(self) -> tuple[EventData, ...]:
        """What the last input led to."""
        return self.scenario.events

    @property
    def last(self) -> Any:
        """The last event of the last decision."""
        return self.said[-1]

    @property
    def names(self) -> list[str]:
        """The names of what was said; what was noted in brackets."""
        return [_name(event) for event in self.said]

    def phases(self, *tasks: str) -> list[str]:
        return [self.state.runs[self.run_id(task)].phase.value for task in tasks]

    def held(self, dimension: str, namespace: str = TEAM) -> int:
        return self.state.account(namespace).balances[dimension].held

    def committed(self, dimension: str, namespace: str = TEAM) -> int:
        return self.state.account(namespace).balances[dimension].committed


def _name(event: EventData) -> str:
    name = type(event).__name__
    return f"{name}({event.fact.kind})" if isinstance(event, Noted) else name


@pytest.fixture
def empty() -> World:
    """Admission before anybody said anything."""
    return World(scenario(DECIDER))


@pytest.fixture
def world(empty: World) -> World:
    """The namespace team-alpha with admin ada, and a limit that lets two tasks run."""
    return empty.namespace().quota("tasks", 2)
