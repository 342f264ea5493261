"""An event loop in virtual time: when nothing is ready, the clock jumps to what comes next."""

from __future__ import annotations

import asyncio
from typing import Any

MAX_STEPS_AT_ONE_TIME = 100_000
"""More rounds of the loop than this without time passing is a spin, not work."""


class StuckError(Exception):
    """Nothing can ever happen again, or time does not pass."""


class _Selector:
    """Stands where the loop asks the operating system: waiting is moving the clock."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise StuckError("nothing is ready and no timer is set")
        if timeout > 0:
            self._loop.now_s += timeout
            self._loop.steps_at_one_time = 0
        self._loop.steps_at_one_time += 1
        if self._loop.steps_at_one_time > MAX_STEPS_AT_ONE_TIME:
            raise StuckError(f"time stands still at {self._loop.now_s} s")
        return []

    def close(self) -> None:
        """Nothing to close."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Single-threaded, no sockets, no signals, no real time. ``time()`` starts at 0 s."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.steps_at_one_time = 0
        self._selector = _Selector(self)

    def time(self) -> float:
        """Virtual seconds."""
        return self.now_s

    def _process_events(self, event_list: list[Any]) -> None:
        """There are no events but timers."""

    def _write_to_self(self) -> None:
        """Nobody sleeps, so nobody is woken."""
