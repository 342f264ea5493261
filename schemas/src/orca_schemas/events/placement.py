"""What placement decides (stream PLACEMENT)."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from orca_schemas.events.admission import Reasons
from orca_schemas.identifiers import Label
from orca_schemas.model import EventData
from orca_schemas.positions import PositionText
from orca_schemas.spec import TaskSpec
from orca_schemas.subjects import Kind, Role
from orca_schemas.units import Amount, Positive, UnixMs
from orca_schemas.values import Inventory, MeterEnd, Outcome, Reason, Slot, Text


class NodeAdmitted(EventData):
    """A node may receive work."""

    ROLE: ClassVar = Role.PLACEMENT
    KIND: ClassVar = Kind.NODE
    boot_id: UUID
    inventory: Inventory


class NodeUpdated(EventData):
    """A known node reports another inventory or boot."""

    ROLE: ClassVar = Role.PLACEMENT
    KIND: ClassVar = Kind.NODE
    boot_id: UUID
    inventory: Inventory


class NodeLost(EventData):
    """A node was silent for ``silent_ms``; it receives no work, and its slots stay taken."""

    ROLE: ClassVar = Role.PLACEMENT
    KIND: ClassVar = Kind.NODE
    silent_ms: Amount


class NodeReturned(EventData):
    """A lost node speaks again."""

    ROLE: ClassVar = Role.PLACEMENT
    KIND: ClassVar = Kind.NODE


class PlacementDeferred(EventData):
    """The run fits nowhere now. Said when the set of reason codes changes."""

    ROLE: ClassVar = Role.PLACEMENT
    run_id: UUID
    reasons: Reasons


class Placed(EventData):
    """The run's attempt belongs on this node, in these slots. Its position is the fence.

    The probe of the attempt may spend ``granted_tokens - lease_base_tokens``.
    """

    ROLE: ClassVar = Role.PLACEMENT
    run_id: UUID
    spec: TaskSpec
    node: Label
    slots: tuple[Slot, ...]
    attempt: Positive
    granted_tokens: Amount | None
    lease_base_tokens: Amount


class StopOrdered(EventData):
    """The node is to end the attempt: SIGTERM, and SIGKILL after ``grace_ms``."""

    ROLE: ClassVar = Role.PLACEMENT
    run_id: UUID
    attempt: Positive
    fence: PositionText
    outcome: Outcome
    message: Text
    grace_ms: Positive


class LeaseUpdated(EventData):
    """The probe of the attempt may spend up to ``granted_tokens`` of the run in all."""

    ROLE: ClassVar = Role.PLACEMENT
    run_id: UUID
    attempt: Positive
    fence: PositionText
    granted_tokens: Amount


class AttemptEnded(EventData):
    """An attempt is over and the run goes back to the queue."""

    ROLE: ClassVar = Role.PLACEMENT
    run_id: UUID
    attempt: Positive
    node: Label
    outcome: Outcome
    exit_code: int | None
    used: tuple[MeterEnd, ...]
    retry_at_ms: UnixMs


class Released(EventData):
    """The run is over; ``attempt`` 0 and no node: it was never placed."""

    ROLE: ClassVar = Role.PLACEMENT
    run_id: UUID
    outcome: Outcome
    exit_code: int | None
    attempt: Amount
    node: Label | None
    used: tuple[MeterEnd, ...]
    reasons: tuple[Reason, ...] = ()
