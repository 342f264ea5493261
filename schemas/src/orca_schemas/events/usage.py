"""What probes count (stream USAGE; the party is the node)."""

from __future__ import annotations

from typing import ClassVar

from orca_schemas.model import EventData
from orca_schemas.subjects import Role
from orca_schemas.units import Positive, UnixMs
from orca_schemas.values import ModelName, RecordHead, TokenClasses


class TokensUsed(RecordHead, EventData):
    """Tokens of one model call, or of several reported together, in disjoint classes."""

    ROLE: ClassVar = Role.PROBE
    model: ModelName
    classes: TokenClasses


class GpuUsed(RecordHead, EventData):
    """``gpu_milli`` of GPUs of one type, held for ``duration_ms`` from ``from_ms`` on."""

    ROLE: ClassVar = Role.PROBE
    gpu_type: ModelName
    gpu_milli: Positive
    from_ms: UnixMs
    duration_ms: Positive


class CpuUsed(RecordHead, EventData):
    """``cpu_milli`` of CPU, held for ``duration_ms`` from ``from_ms`` on."""

    ROLE: ClassVar = Role.PROBE
    cpu_milli: Positive
    from_ms: UnixMs
    duration_ms: Positive
