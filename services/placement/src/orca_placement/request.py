"""What a run asks of a node, reduced to what decides whether and where it fits."""

from __future__ import annotations

from typing import NamedTuple

from orca_schemas.manifest import Sharing
from orca_schemas.spec import FULL_PERCENT, MILLI, TaskSpec


class Request(NamedTuple):
    """The signature of a run: two runs with equal requests fit the same nodes.

    ``gpu_milli`` and ``gpu_memory_mib`` are per GPU; an exclusive request takes all memory of
    cards that have at least ``gpu_memory_mib`` (0: any). ``excluded`` are nodes that refused.
    """

    gpu_type: str | None
    gpu_count: int
    gpu_milli: int
    gpu_memory_mib: int
    exclusive: bool
    cpu_milli: int
    memory_mib: int
    excluded: tuple[str, ...]


def request_of(spec: TaskSpec, excluded: tuple[str, ...] = ()) -> Request:
    """Reduce a spec. A share of a card without a memory limit is the whole card."""
    gpu = spec.gpu
    if gpu is None:
        return Request(None, 0, 0, 0, False, spec.cpu_milli, spec.memory_mib, excluded)
    exclusive = gpu.sharing is Sharing.EXCLUSIVE or gpu.memory_mib is None
    milli = MILLI if exclusive else MILLI * gpu.compute_percent // FULL_PERCENT
    return Request(
        gpu.type, gpu.count, milli, gpu.memory_mib or 0, exclusive,
        spec.cpu_milli, spec.memory_mib, excluded,
    )  # fmt: skip
