"""What admission decides (stream ADMISSION)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar
from uuid import UUID

from pydantic import Field

from orca_schemas.identifiers import Label
from orca_schemas.model import EventData, omitted
from orca_schemas.positions import PositionText
from orca_schemas.spec import TaskSpec
from orca_schemas.subjects import Role
from orca_schemas.units import Amount
from orca_schemas.values import Hold, Outcome, Reason

Reasons = Annotated[tuple[Reason, ...], Field(min_length=1)]


class Rejection(StrEnum):
    """Why an unreserved task ended."""

    REFUSED = "refused"
    DENIED = "denied"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class Part(StrEnum):
    """The parts of a run's holds, each released once."""

    CONCURRENT = "concurrent"
    CONSUMABLE = "consumable"


class TaskRejected(EventData):
    """The one end of a task that was never reserved; ``name`` and ``user`` where readable."""

    ROLE: ClassVar = Role.ADMISSION
    run_id: UUID
    outcome: Rejection
    reasons: Reasons
    name: str | None = omitted()
    user: str | None = omitted()


class RequestRefused(EventData):
    """A request that changes nothing: answers a refused cancel, repeat or setting."""

    ROLE: ClassVar = Role.ADMISSION
    KIND: ClassVar = None
    position: PositionText
    party: str
    request: str
    reason: Reason


class TaskQueued(EventData):
    """The task is valid and waits for quota."""

    ROLE: ClassVar = Role.ADMISSION
    run_id: UUID
    spec: TaskSpec
    blockers: Reasons


class QuotaReserved(EventData):
    """Quota is held for the run, on every account of the chain at once.

    ``granted_tokens`` is the part of the token hold handed to the probe; None: not limited.
    """

    ROLE: ClassVar = Role.ADMISSION
    run_id: UUID
    accounts: tuple[Label, ...]
    held: tuple[Hold, ...]
    granted_tokens: Amount | None
    spec: TaskSpec


class LeaseExtended(EventData):
    """The probe may spend up to ``granted_tokens`` in all (absolute, never less than before)."""

    ROLE: ClassVar = Role.ADMISSION
    run_id: UUID
    granted_tokens: Amount


class QuotaSettled(EventData):
    """The run has used ``used_tokens`` in all (cumulative), moved from hold to committed."""

    ROLE: ClassVar = Role.ADMISSION
    run_id: UUID
    used_tokens: Amount


class QuotaReleased(EventData):
    """One part of the run's holds is given back; ``amounts`` is what was still held.

    With the concurrent part the run ends, and ``outcome`` says how.
    """

    ROLE: ClassVar = Role.ADMISSION
    run_id: UUID
    part: Part
    amounts: tuple[Hold, ...]
    outcome: Outcome | None = omitted()


class TaskStopRequested(EventData):
    """The run is to end with this outcome."""

    ROLE: ClassVar = Role.ADMISSION
    run_id: UUID
    outcome: Outcome
    message: str
