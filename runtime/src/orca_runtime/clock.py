"""Time as a port, so that tests and the simulation can own it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall and steady time."""

    def now_ms(self) -> int:
        """Unix milliseconds, UTC; may step."""
        ...

    def steady_s(self) -> float:
        """Seconds that only ever grow; for durations."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Unix milliseconds, UTC."""
        return time.time_ns() // 1_000_000

    def steady_s(self) -> float:
        """Seconds since some fixed moment."""
        return time.monotonic()
