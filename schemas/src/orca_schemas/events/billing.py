"""What billing charges (stream BILLING)."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from orca_schemas.model import EventData
from orca_schemas.subjects import Role
from orca_schemas.values import ChargeLine


class Charged(EventData):
    """Each accepted record of one settlement, priced once; ``total_pico_usd`` is R's in all."""

    ROLE: ClassVar = Role.BILLING
    run_id: UUID
    lines: tuple[ChargeLine, ...]
    total_pico_usd: int
    final: bool
