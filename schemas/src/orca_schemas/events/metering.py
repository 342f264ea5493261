"""What metering accepts (stream METERING)."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from orca_schemas.model import EventData
from orca_schemas.subjects import Role
from orca_schemas.units import Amount
from orca_schemas.values import AcceptedRecord, BucketTotal, MissingRange, Text


class UsageSettled(EventData):
    """Records accepted for the run, and the run's cumulative totals that they changed.

    ``final``: no more is expected; ``missing`` names what was promised and never came.
    """

    ROLE: ClassVar = Role.METERING
    run_id: UUID
    records: tuple[AcceptedRecord, ...]
    totals: tuple[BucketTotal, ...]
    used_tokens: Amount
    final: bool
    missing: tuple[MissingRange, ...] = ()


class UsageQuarantined(EventData):
    """A record that is not believed: counted nowhere until an operator accepts it."""

    ROLE: ClassVar = Role.METERING
    run_id: UUID
    record_id: UUID
    reason: Text
