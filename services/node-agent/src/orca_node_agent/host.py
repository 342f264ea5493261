"""What the host offers: GPUs, CPUs, memory, and who drives them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from orca_schemas.values import Gpu, Inventory

MEMINFO_PATH = Path("/proc/meminfo")
MILLI = 1000
KIB_PER_MIB = 1024


@dataclass(frozen=True, slots=True)
class Capacity:
    """CPU and memory offered to tasks. 1000 ``cpu_milli`` is one core."""

    cpu_milli: int
    memory_mib: int


def host_capacity(cpu_milli: int | None, memory_mib: int | None) -> Capacity:
    """What the settings say, and where they do not, all that the host has."""
    return Capacity(
        cpu_milli or (os.cpu_count() or 1) * MILLI, memory_mib or total_memory_mib(MEMINFO_PATH)
    )


def total_memory_mib(meminfo: Path) -> int:
    """MemTotal of /proc/meminfo, whose "kB" are KiB (proc(5))."""
    for line in meminfo.read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) // KIB_PER_MIB
    raise ValueError(f"{meminfo} has no MemTotal")


def inventory(gpus: tuple[Gpu, ...], capacity: Capacity, executor: str) -> Inventory:
    """The node's offer."""
    return Inventory(
        gpus=gpus,
        cpu_milli=capacity.cpu_milli,
        memory_mib=capacity.memory_mib,
        executor=executor,
        agent_version=version("orca-node-agent"),
    )
