"""The node's side of a real broker, also while that is not there yet."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import structlog
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from orca_runtime.errors import LogError, LogUnavailableError
from orca_runtime.jetstream import JetStreamLog
from orca_runtime.log import Outgoing
from orca_schemas.positions import Position
from orca_schemas.subjects import hint_subject

from orca_node_agent.ports import AskFailedError

RETRY_S = 2.0

_logger = structlog.get_logger(__name__)


class NatsBus:
    """Connects in the background for as long as it takes: a node counts without its broker.

    Events go through the log's writing connection, all else through its other one.
    """

    def __init__(self, connect: Callable[[], Awaitable[JetStreamLog]], node: str) -> None:
        self._node = node
        self._connecting = asyncio.create_task(self._connect(connect))

    async def publish(self, message: Outgoing) -> Position:
        """See Bus.publish."""
        return await self._log.publish(message)

    async def beat(self, subject: str, body: bytes) -> None:
        """See Bus.beat. While disconnected nothing is sent: an old heartbeat would be a lie."""
        connection = self._log.nc
        if not connection.is_connected:
            raise LogUnavailableError("the broker is away")
        try:
            await connection.publish(subject, body)
        except (NatsError, OSError) as error:
            raise LogUnavailableError(str(error)) from error

    async def ask(self, subject: str, body: bytes, timeout_s: float) -> bytes:
        """See Bus.ask."""
        try:
            reply = await self._log.nc.request(subject, body, timeout=timeout_s)
        except (NatsError, TimeoutError, OSError, LogUnavailableError) as error:
            raise AskFailedError(f"{subject}: {error or 'no answer in time'}") from error
        return reply.data

    async def hints(self) -> AsyncIterator[None]:
        """See Bus.hints. Several hints while one is handled are one: each says only "ask"."""
        hinted = asyncio.Event()

        async def hear(_: Msg) -> None:
            hinted.set()

        log = await asyncio.shield(self._connecting)
        await log.nc.subscribe(hint_subject(self._node), cb=hear)
        while True:
            await hinted.wait()
            hinted.clear()
            yield None

    async def wait_closed(self) -> None:
        """Wait until the broker closed the connection for good: start anew."""
        await (await asyncio.shield(self._connecting)).wait_closed()

    async def close(self) -> None:
        """Let go of the connection."""
        self._connecting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await (await self._connecting).close()

    @property
    def _log(self) -> JetStreamLog:
        if not self._connecting.done():
            raise LogUnavailableError("not connected yet")
        return self._connecting.result()

    async def _connect(self, connect: Callable[[], Awaitable[JetStreamLog]]) -> JetStreamLog:
        while True:
            try:
                return await connect()
            except LogError as error:
                _logger.warning("no broker yet", error=str(error))
                await asyncio.sleep(RETRY_S)
