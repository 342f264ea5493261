"""From the spool to the broker: in order, each until it is there."""

from __future__ import annotations

import asyncio
import random

import structlog
from orca_runtime.errors import LogError

from orca_node_agent.ledger import Ledger
from orca_node_agent.ports import Bus
from orca_node_agent.spool import Spool, SpoolError, Waiting
from orca_node_agent.spool_thread import SpoolThread

BATCH_ROWS = 64
"""Taken out of the spool together: one disk sync for so many acknowledged messages."""
IDLE_S = 1.0
FIRST_RETRY_S = 0.1
LAST_RETRY_S = 10.0

_log = structlog.get_logger(__name__)


class Publisher:
    """Empties the outbox. A message whose outcome is not known is sent again under its id."""

    def __init__(self, spool: Spool, ledger: Ledger, thread: SpoolThread, bus: Bus) -> None:
        self._spool, self._ledger = spool, ledger
        self._thread, self._bus = thread, bus
        self._retry_s = FIRST_RETRY_S

    async def run(self) -> None:
        """Publish for ever; returns only when cancelled."""
        while True:
            try:
                if not await self.publish_some():
                    await self._more()
                self._retry_s = FIRST_RETRY_S
            except (LogError, SpoolError) as error:
                _log.warning("spool waits", rows=self._spool.rows, error=str(error))
                await asyncio.sleep(self._retry_s * random.uniform(0.5, 1.0))
                self._retry_s = min(self._retry_s * 2, LAST_RETRY_S)

    async def flush(self, timeout_s: float) -> bool:
        """Publish what is there, for at most ``timeout_s``; whether all of it went out."""
        try:
            async with asyncio.timeout(timeout_s):
                while await self.publish_some():
                    pass
        except (TimeoutError, LogError, SpoolError):
            return False
        return True

    async def publish_some(self) -> int:
        """Publish the oldest messages; how many. Raises what Bus.publish raises."""
        self._thread.said.clear()
        rows = await self._thread.quietly(self._spool.waiting, BATCH_ROWS)
        sent = 0
        try:
            for row in rows:
                await self._bus.publish(row.message)
                sent += 1
        finally:
            if sent:
                await self._drop(rows[sent - 1])
        return sent

    async def _drop(self, last: Waiting) -> None:
        await asyncio.shield(self._thread.quietly(self._ledger.drop_through, last.seq))

    async def _more(self) -> None:
        try:
            async with asyncio.timeout(IDLE_S):
                await self._thread.said.wait()
        except TimeoutError:
            return
