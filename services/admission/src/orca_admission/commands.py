"""What admission may be asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from orca_runtime.recorded import Unreadable
from orca_schemas.positions import Position
from orca_schemas.spec import TaskSpec
from orca_schemas.subjects import Subject
from orca_schemas.values import Meter, MeterEnd, Outcome, Period


@dataclass(frozen=True, slots=True)
class Origin:
    """The input that a command comes from: where it stands, who said what about what."""

    position: Position
    subject: Subject


@dataclass(frozen=True, slots=True)
class KnowNamespace:
    """A namespace exists and has these admins."""

    origin: Origin
    admins: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetLimit:
    """Limit a dimension of the account that the subject names."""

    origin: Origin
    dimension: str
    period: Period
    limit: int | None


@dataclass(frozen=True, slots=True)
class Submit:
    """A user wants a task to run."""

    origin: Origin
    run_id: UUID
    spec: TaskSpec


@dataclass(frozen=True, slots=True)
class Cancel:
    """Somebody no longer wants a task."""

    origin: Origin
    reason: str


@dataclass(frozen=True, slots=True)
class NoteAttempt:
    """Placement put an attempt on a node."""

    origin: Origin
    run_id: UUID
    attempt: int
    node: str
    fence: str


@dataclass(frozen=True, slots=True)
class NoteEnd:
    """An attempt is over, the run goes on."""

    origin: Origin
    run_id: UUID
    attempt: int
    node: str
    used: tuple[MeterEnd, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """The run is over, with this outcome, and holds no device any more."""

    origin: Origin
    run_id: UUID
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Settle:
    """Metering counted ``used_tokens`` of the run in all; ``final``: no more is expected."""

    origin: Origin
    run_id: UUID
    used_tokens: int
    final: bool


@dataclass(frozen=True, slots=True)
class ExtendLease:
    """A node's probe has nearly spent the attempt's lease."""

    origin: Origin
    run_id: UUID
    attempt: int
    fence: str
    meter: Meter
    used: int


@dataclass(frozen=True, slots=True)
class Rescan:
    """Go on with a look at a queue that reached its bound."""

    namespace: str


@dataclass(frozen=True, slots=True)
class Forget:
    """A finished run was remembered long enough."""

    run_id: UUID


@dataclass(frozen=True, slots=True)
class AnswerUnreadable:
    """A message that is no event needs an answer all the same."""

    message: Unreadable


Command = (
    KnowNamespace
    | SetLimit
    | Submit
    | Cancel
    | NoteAttempt
    | NoteEnd
    | Release
    | Settle
    | ExtendLease
    | Rescan
    | Forget
    | AnswerUnreadable
)
