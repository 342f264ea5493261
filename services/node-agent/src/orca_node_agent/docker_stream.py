"""One pass over the output of a container: frames taken apart, bytes counted."""

from __future__ import annotations

import asyncio

import aiohttp

from orca_node_agent.docker_engine import NOT_FOUND, Engine
from orca_node_agent.executor import ExecutorUnavailableError

QUEUED_CHUNKS = 2  # of at most about 128 KiB each: a reader that waits makes the engine wait
HEADER_BYTES = 8  # of a frame: stream, 3 zero bytes, length (32 bits, big endian)
SKIP_BYTES = 1 << 18


class Demultiplexer:
    """Takes the payload out of the engine's frames, stdout and stderr as one."""

    def __init__(self) -> None:
        self._raw = bytearray()
        self._frame_left = 0

    def feed(self, data: bytes) -> None:
        """Add what the engine sent; frames may be cut anywhere."""
        self._raw += data

    def take(self, limit_bytes: int) -> bytes:
        """The next payload bytes at hand, at most ``limit_bytes``."""
        out = bytearray()
        while len(out) < limit_bytes and self._next_frame():
            part = self._raw[: min(self._frame_left, limit_bytes - len(out))]
            del self._raw[: len(part)]
            self._frame_left -= len(part)
            out += part
        return bytes(out)

    def _next_frame(self) -> bool:
        """Whether a payload byte is at hand; passes headers (of empty frames too)."""
        while not self._frame_left and len(self._raw) >= HEADER_BYTES:
            self._frame_left = int.from_bytes(self._raw[4:HEADER_BYTES], "big")
            del self._raw[:HEADER_BYTES]
        return self._frame_left > 0 and len(self._raw) > 0


class LogStream:
    """One pass over the output of a container; ``position`` is the offset of its next byte."""

    def __init__(self, engine: Engine, name: str, follow: bool) -> None:
        self.follow = follow
        self.position = 0
        self.ended = False
        self._engine, self._name = engine, name
        self._demux = Demultiplexer()
        self._chunks: asyncio.Queue[bytes | Exception] = asyncio.Queue(QUEUED_CHUNKS)
        self._pump_task = asyncio.create_task(self._pump())

    async def read(self, offset: int, limit_bytes: int, wait_s: float) -> bytes:
        """At most ``limit_bytes`` from ``offset`` on, which must not lie before ``position``.

        Short when the output ends, or ``wait_s`` are over: in all for a follower, else for each
        chunk. Cut off by that, ``ended`` stays false. Raises ExecutorUnavailableError.
        """
        assert offset >= self.position, (offset, self.position)
        loop = asyncio.get_running_loop()
        out, deadline = bytearray(), loop.time() + wait_s
        while len(out) < limit_bytes:
            to_skip = offset - self.position
            wanted = min(to_skip, SKIP_BYTES) if to_skip > 0 else limit_bytes - len(out)
            part = await self._take(wanted, deadline)
            if not part:
                break
            if to_skip <= 0:
                out += part
            if not self.follow:
                deadline = loop.time() + wait_s
        return bytes(out)

    async def close(self) -> None:
        """End the pass and its connection."""
        self._pump_task.cancel()
        await asyncio.gather(self._pump_task, return_exceptions=True)

    async def _take(self, limit_bytes: int, deadline: float) -> bytes:
        while not (part := self._demux.take(limit_bytes)) and not self.ended:
            try:
                async with asyncio.timeout_at(deadline):
                    chunk = await self._chunks.get()
            except TimeoutError:
                return b""
            self._accept(chunk)
        self.position += len(part)
        return part

    def _accept(self, chunk: bytes | Exception) -> None:
        if isinstance(chunk, Exception):
            self.ended = True
            raise ExecutorUnavailableError(f"output of {self._name}: {chunk}") from chunk
        if chunk:
            self._demux.feed(chunk)
        else:
            self.ended = True

    async def _pump(self) -> None:
        """Carry chunks from the engine to the queue: bytes, then b"" for the end, or an error.

        A task of its own because the engine holds back even the headers until there is output.
        """
        try:
            await self._carry()
        except (ExecutorUnavailableError, aiohttp.ClientError, OSError) as error:
            await self._chunks.put(error)
        else:
            await self._chunks.put(b"")

    async def _carry(self) -> None:
        async with self._engine.call(f"output of {self._name}") as docker:
            await docker.version()  # the version of the API is in the address
        address = f"{docker.docker_host}/{docker.api_version}/containers/{self._name}/logs"
        params = {"stdout": "1", "stderr": "1", "follow": str(int(self.follow))}
        async with docker.session.get(address, params=params) as response:
            if response.status == NOT_FOUND:
                return
            response.raise_for_status()
            while chunk := await response.content.readany():
                await self._chunks.put(chunk)
