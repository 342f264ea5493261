"""What billing is asked to do, one command per kind of input."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from orca_schemas.events.admin import PriceSet
from orca_schemas.events.metering import UsageSettled
from orca_schemas.positions import Position
from orca_schemas.values import Fault


@dataclass(frozen=True, slots=True)
class SetPrice:
    """An operator sets a price; the broker had it at ``received_at_ms``."""

    namespace: str
    price_id: str
    version: Position
    received_at_ms: int
    price: PriceSet


@dataclass(frozen=True, slots=True)
class Charge:
    """Metering settled usage of a run."""

    namespace: str
    task_id: str
    settled: UsageSettled


@dataclass(frozen=True, slots=True)
class Forget:
    """The run was final long enough."""

    run_id: UUID


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message is no event."""

    fault: Fault


@dataclass(frozen=True, slots=True)
class LeaveToAdmission:
    """An operator's message is no event: admission refuses it by name; here it changes nothing."""

    error: str


Command = SetPrice | Charge | Forget | DeadLetter | LeaveToAdmission
