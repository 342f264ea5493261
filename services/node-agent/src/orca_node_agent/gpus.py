"""What GPUs a host has: the port behind which NVML and the simulation stand."""

from __future__ import annotations

from typing import Protocol

from orca_schemas.values import Gpu


class GpuProbeError(Exception):
    """The driver does not answer, or answers nonsense: nothing is known of the GPUs."""


class GpuBackend(Protocol):
    """Lists GPUs by UUID; an index may change with every boot."""

    name: str

    async def inventory(self) -> tuple[Gpu, ...]:
        """Every GPU of the host. Raises GpuProbeError, always within a bounded time."""
        ...


class NoGpus:
    """A host without GPUs."""

    name = "none"

    async def inventory(self) -> tuple[Gpu, ...]:
        """None."""
        return ()
