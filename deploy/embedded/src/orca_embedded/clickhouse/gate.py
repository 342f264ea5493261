"""How many statements run and wait at once; the rest are refused with a clear error."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from orca_embedded.clickhouse.errors import ABORTED, TOO_MANY_SIMULTANEOUS_QUERIES, refusal

T = TypeVar("T")


class Gate:
    """A bounded queue before a bounded pool of threads; one event loop's own."""

    def __init__(self, max_running: int, max_waiting: int) -> None:
        self._threads = ThreadPoolExecutor(max_running, thread_name_prefix="query")
        self._max_held = max_running + max_waiting
        self._held = 0
        self._open = True
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self, work: Callable[[], T]) -> T:
        """Run blocking work in a thread.

        Raises ServerError: TOO_MANY_SIMULTANEOUS_QUERIES when the queue is full, ABORTED once
        the gate is closed. A caller that goes away leaves its work running to its end.
        """
        self._enter()
        job = asyncio.get_running_loop().run_in_executor(self._threads, work)
        job.add_done_callback(lambda _: self._leave())
        return await asyncio.shield(job)

    async def close(self, grace_s: float) -> bool:
        """Refuse new work, wait for the work held; False if some still runs after the grace."""
        self._open = False
        try:
            await asyncio.wait_for(self._idle.wait(), grace_s)
        except TimeoutError:
            return False
        self._threads.shutdown()
        return True

    def _enter(self) -> None:
        if not self._open:
            raise refusal(ABORTED, "ABORTED", "The server is shutting down")
        if self._held >= self._max_held:
            name = "TOO_MANY_SIMULTANEOUS_QUERIES"
            message = f"Too many queries at once; at most {self._max_held} run or wait"
            raise refusal(TOO_MANY_SIMULTANEOUS_QUERIES, name, message)
        self._held += 1
        self._idle.clear()

    def _leave(self) -> None:
        self._held -= 1
        if self._held == 0:
            self._idle.set()
