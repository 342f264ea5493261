"""One thread for the spool: a slow disk delays what is said, never the heartbeat."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class SpoolThread:
    """Runs blocking calls one after another. ``said`` is set when something may wait to be sent."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spool")
        self.said = asyncio.Event()

    async def __call__(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``call`` on the thread; a caller that is cancelled does not undo it."""
        try:
            return await self.quietly(call, *args, **kwargs)
        finally:
            self.said.set()

    async def quietly(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Like calling it, for what adds nothing to be sent."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: call(*args, **kwargs))

    def close(self) -> None:
        """Finish what is queued and end the thread."""
        self._pool.shutdown(wait=True)
