"""Request bodies, bounded one by one and all together."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import BodyPartReader, StreamReader, web

from orca_embedded.clickhouse.compression import body_too_large
from orca_embedded.clickhouse.errors import MEMORY_LIMIT_EXCEEDED, NOT_IMPLEMENTED, refusal

# A body is held while it is read and run: two of the largest may be held at once.
_LARGEST_HELD = 2


class Bodies:
    """Reads bodies of up to ``max_bytes`` and refuses more while too many bytes are held."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._held_bytes = 0

    @asynccontextmanager
    async def holding(self) -> AsyncIterator["Holder"]:
        """What one request's ``Holder`` reads counts until the end of the block."""
        holder = Holder(self)
        try:
            yield holder
        finally:
            self._held_bytes -= holder.held_bytes

    def hold(self, more_bytes: int) -> None:
        """Count bytes in; raises ServerError MEMORY_LIMIT_EXCEEDED when too many are held."""
        self._held_bytes += more_bytes
        if self._held_bytes > _LARGEST_HELD * self.max_bytes:
            message = "Too many request bodies at once; send this one again later"
            raise refusal(MEMORY_LIMIT_EXCEEDED, "MEMORY_LIMIT_EXCEEDED", message)


class Holder:
    """One request's body."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self.held_bytes = 0

    async def read(self, content: StreamReader) -> bytes:
        """The raw body; raises ServerError QUERY_IS_TOO_LARGE over the bound."""
        body = bytearray()
        async for chunk in content.iter_any():
            self._hold(len(chunk))
            body += chunk
        return bytes(body)

    async def read_form(self, request: web.Request) -> list[tuple[str, str]]:
        """The fields of a multipart form; one with a file name is refused (NOT_IMPLEMENTED)."""
        fields: list[tuple[str, str]] = []
        async for part in await request.multipart():
            if not isinstance(part, BodyPartReader) or part.filename is not None:
                message = "External data is not available; insert it into a table first"
                raise refusal(NOT_IMPLEMENTED, "NOT_IMPLEMENTED", message)
            value = bytearray()
            while chunk := await part.read_chunk():
                self._hold(len(chunk))
                value += chunk
            fields.append((part.name or "", value.decode(errors="surrogateescape")))
        return fields

    def _hold(self, more_bytes: int) -> None:
        self.held_bytes += more_bytes
        self._bodies.hold(more_bytes)
        if self.held_bytes > self._bodies.max_bytes:
            raise body_too_large(self._bodies.max_bytes)
