"""What placement knows: the fold of its own stream."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from immutables import Map
from orca_runtime.tables import Table
from orca_schemas.spec import TaskSpec
from orca_schemas.values import Outcome, Reason, ReasonCode, Slot
from pydantic import TypeAdapter

from orca_placement.cluster import Hold, Mark, Node
from orca_placement.request import Request, request_of
from orca_placement.waiting import Ticket, ticket_of


class Phase(StrEnum):
    """Where a run stands. ``waiting`` is in the queue, ``retrying`` comes back to it later."""

    WAITING = "waiting"
    RETRYING = "retrying"
    LIVE = "live"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Stop:
    """The end that was ordered of an attempt."""

    outcome: Outcome
    message: str
    grace_ms: int
    ordered_ms: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """The live attempt of a run. ``fence`` is the position of its Placed."""

    number: int
    node: str
    slots: tuple[Slot, ...]
    fence: str
    placed_ms: int
    started_ms: int | None = None
    stop: Stop | None = None
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """A run whose quota is reserved, until FORGET_MS after its end.

    ``lease_base_tokens`` is what earlier attempts used, or could have. ``failures`` counts the
    attempts that count against backoffLimit. ``reasons`` are those last said of this wait;
    ``unfit`` marks since when they say that no node could ever take it.
    """

    run_id: UUID
    namespace: str
    task_id: str
    spec: TaskSpec
    order: int
    phase: Phase
    since: Mark
    granted_tokens: int | None
    lease_base_tokens: int = 0
    attempts: int = 0
    failures: int = 0
    excluded: tuple[str, ...] = ()
    reasons: tuple[Reason, ...] = ()
    unfit: Mark | None = None
    retry_at_ms: int = 0
    first_started_ms: int | None = None
    attempt: Attempt | None = None
    outcome: Outcome | None = None
    last_node: str | None = None

    @property
    def key(self) -> str:
        """The run's key in the state's tables."""
        return str(self.run_id)

    @property
    def task_uuid(self) -> UUID:
        """The task's id, as answers carry it."""
        return UUID(self.task_id)


@dataclass(frozen=True, slots=True)
class State:
    """``sequence`` is that of the last own event; ``rescan`` marks a look at the queue owed."""

    sequence: int
    nodes: Table[str, Node]
    runs: Table[str, Run]
    waiting: Table[Request, tuple[Ticket, ...]]
    rescan: Mark | None


INITIAL = State(0, Map(), Map(), Map(), None)
STATE_TYPE = TypeAdapter(State)

UNFIT = frozenset({ReasonCode.NEVER_FITS, ReasonCode.GPU_TYPE_ABSENT})
"""Reasons that no end of another run can lift."""


def run_request(run: Run) -> Request:
    """What the run asks of a node now."""
    return request_of(run.spec, run.excluded)


def run_ticket(run: Run) -> Ticket:
    """The run's place in the queue."""
    return ticket_of(run.spec.priority, run.order, run.key)


def run_hold(run: Run) -> Hold:
    """What the run's live attempt takes of its node."""
    assert run.attempt is not None
    return Hold(run.spec.cpu_milli, run.spec.memory_mib, run.attempt.slots)


def codes(reasons: tuple[Reason, ...]) -> frozenset[ReasonCode]:
    """The set of codes: a deferral is said when this changes."""
    return frozenset(reason.code for reason in reasons)
