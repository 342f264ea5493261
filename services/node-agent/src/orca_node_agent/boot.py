"""This boot of the host: its id, and its clock."""

from __future__ import annotations

import time
from pathlib import Path

BOOT_ID_PATH = Path("/proc/sys/kernel/random/boot_id")


def host_boot_id(path: Path = BOOT_ID_PATH) -> str:
    """The kernel's name for this boot."""
    return path.read_text().strip()


def boot_clock_s() -> float:
    """Seconds since boot, also while suspended: the same in every process, and never set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
