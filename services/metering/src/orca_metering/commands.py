"""What metering is asked to do, one command per kind of input."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from orca_schemas.events.usage import CpuUsed, GpuUsed, TokensUsed
from orca_schemas.values import Fault, MeterEnd

Usage = TokensUsed | GpuUsed | CpuUsed


@dataclass(frozen=True, slots=True)
class NoteAttempt:
    """Placement put an attempt on a node."""

    namespace: str
    task_id: str
    run_id: UUID
    attempt: int
    node: str
    fence: str


@dataclass(frozen=True, slots=True)
class NoteEnd:
    """An attempt ended; when ``last``, so did the run. Attempt 0: it was never placed."""

    namespace: str
    task_id: str
    run_id: UUID
    attempt: int
    node: str | None
    used: tuple[MeterEnd, ...]
    last: bool


@dataclass(frozen=True, slots=True)
class AcceptRecord:
    """A probe on ``party`` reports usage; the broker had it at ``received_at_ms``."""

    namespace: str
    task_id: str
    party: str
    received_at_ms: int
    usage: Usage


@dataclass(frozen=True, slots=True)
class EndGrace:
    """The time for missing records is over."""

    run_id: UUID


@dataclass(frozen=True, slots=True)
class Forget:
    """The run was final long enough."""

    run_id: UUID


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message is no event."""

    fault: Fault


Command = NoteAttempt | NoteEnd | AcceptRecord | EndGrace | Forget | DeadLetter
