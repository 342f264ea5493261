"""The engine's log API has no byte offsets; this gives it some.

A reader per attempt follows the engine's stream and counts the bytes it has passed, so reading
on costs nothing and only a reader that has to go back starts again from the first byte. Times
(``since``) are not used to find a place: they may repeat or step back, bytes would be lost.

A follower may miss what is written just before the container ends (Docker 20.10: the last lines
of 56 of 120 short attempts). So an exited attempt is read once more from its first byte, without
following; the engine gives about 200,000 lines per second, so run the shipping of output apart
from what must not wait.

Within stdout and within stderr the order is exact; between them it is the order in which the
engine's two copiers got to write, and stays the same from then on.

Limit: the engine drops the oldest output beyond ``DockerOptions.log_max_mib``. From then on a
pass from the first byte counts from the oldest byte kept, and so skips as much as was dropped:
after a restart of the agent or the engine, and for what a follower missed at the end.
"""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary

from orca_node_agent.docker_engine import CALL_TIMEOUT_S, Engine
from orca_node_agent.docker_spec import container_name
from orca_node_agent.docker_stream import LogStream
from orca_node_agent.executor import ExecutorUnavailableError

MAX_STREAMS = 64  # the client allows 100 connections; the rest is for calls
FIRST_WAIT_S = 0.5  # the engine needs some time to open its files
IDLE_WAIT_S = 0.05  # whether a running attempt writes little or nothing, its reader goes on
END_WAIT_S = 2.0  # how long a follower may take to notice the end of its container


class LogReader:
    """Reads the output of attempts by offset; at most MAX_STREAMS passes are held open."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._streams: dict[str, LogStream] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def read(self, key: str, offset: int, limit_bytes: int, running: bool) -> bytes:
        """Output from ``offset`` on. Of an exited attempt, empty means that there is no more.

        Raises ExecutorUnavailableError.
        """
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            try:
                return await self._read(key, offset, limit_bytes, running)
            except ExecutorUnavailableError:
                await self.forget(key)  # its position is no longer known
                raise

    async def _read(self, key: str, offset: int, limit_bytes: int, running: bool) -> bytes:
        stream = self._streams.pop(key, None)
        if stream is None or stream.position > offset or (stream.ended and running):
            stream = await self._open(key, stream, follow=running)
            wait_s = FIRST_WAIT_S
        else:
            self._streams[key] = stream  # again, as the one used last
            wait_s = IDLE_WAIT_S if running else END_WAIT_S
        if not stream.follow:
            return await _read_whole(stream, offset, limit_bytes)
        data = await stream.read(offset, limit_bytes, wait_s)
        if data or running:
            return data
        # The container has ended, and with it the follower: what it may have missed is on disk.
        stream = await self._open(key, stream, follow=False)
        return await _read_whole(stream, offset, limit_bytes)

    async def forget(self, key: str) -> None:
        """Close the pass of an attempt."""
        stream = self._streams.pop(key, None)
        if stream is not None:
            await stream.close()

    async def close(self) -> None:
        """Close all passes."""
        for key in list(self._streams):
            await self.forget(key)

    async def _open(self, key: str, old: LogStream | None, follow: bool) -> LogStream:
        if old is not None:
            await old.close()
        while len(self._streams) >= MAX_STREAMS:
            await self.forget(next(iter(self._streams)))
        self._streams[key] = LogStream(self._engine, container_name(key), follow)
        return self._streams[key]


async def _read_whole(stream: LogStream, offset: int, limit_bytes: int) -> bytes:
    data = await stream.read(offset, limit_bytes, CALL_TIMEOUT_S)
    if len(data) < limit_bytes and not stream.ended:
        raise ExecutorUnavailableError("output: the Docker Engine stopped answering")
    return data
