"""What nodes report (stream NODE; the party is the node)."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from orca_schemas.model import EventData
from orca_schemas.positions import PositionText
from orca_schemas.subjects import Kind, Role
from orca_schemas.units import Amount, Positive, UnixMs
from orca_schemas.values import Inventory, Meter, MeterEnd, Outcome, Reason, Text


class NodeJoined(EventData):
    """A node offers itself. A new ``boot_id`` says that nothing of before still runs there."""

    ROLE: ClassVar = Role.NODE
    KIND: ClassVar = Kind.NODE
    boot_id: UUID
    inventory: Inventory


class TaskStarted(EventData):
    """The attempt's process or container runs."""

    ROLE: ClassVar = Role.NODE
    run_id: UUID
    attempt: Positive
    fence: PositionText
    started_at_ms: UnixMs


class TaskFinished(EventData):
    """The attempt's body is gone from the host; its slot is free."""

    ROLE: ClassVar = Role.NODE
    run_id: UUID
    attempt: Positive
    fence: PositionText
    outcome: Outcome
    exit_code: int | None
    message: Text
    started_at_ms: UnixMs | None
    finished_at_ms: UnixMs
    used: tuple[MeterEnd, ...]


class OrderRefused(EventData):
    """The node cannot carry out an assignment; the attempt has not begun."""

    ROLE: ClassVar = Role.NODE
    run_id: UUID
    attempt: Positive
    fence: PositionText
    reason: Reason


class LeaseTopUpRequested(EventData):
    """The probe has spent most of its lease: ``used`` of ``granted_tokens``."""

    ROLE: ClassVar = Role.NODE
    run_id: UUID
    attempt: Positive
    fence: PositionText
    meter: Meter
    used: Amount
    granted_tokens: Amount
