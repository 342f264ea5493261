"""nats-py made safe against what others publish.

Measured on nats-py 2.16: one stored message whose subject is no UTF-8 or holds ``\\r``, ``\\v`` or
``\\f``, or whose header block is cut short, ends the read loop of every subscriber, and again
after each reconnect. Whoever may publish one task could stop every decider for good. This parser
takes such messages as data. It also hands chosen subscriptions their messages as raw bytes,
without a queue and a task between.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from nats.aio.client import Client
from nats.errors import ProtocolError
from nats.protocol.parser import Parser

CRLF = b"\r\n"
MAX_LINE_BYTES = 64 * 1024
"""INFO is the longest line; the server's own bound for the others is 4,096."""

RECONNECT_PAUSE_S = 0.5

RawHandler = Callable[[bytes, bytes, bytes, bytes], None]
"""Called with subject, reply, header block and body; must not raise."""


class TolerantParser(Parser):
    """Reads the server's lines by their separators, so that no byte in a subject matters."""

    nc: TolerantClient

    async def parse(self, data: bytes = b"") -> None:
        """Take bytes from the socket and dispatch every complete operation."""
        self.buf.extend(data)
        start = 0
        try:
            while (end := await self._operation(start)) > start:
                start = end
        finally:
            del self.buf[:start]

    async def _operation(self, start: int) -> int:
        """Dispatch the operation at ``start``; return where the next begins (``start``: wait)."""
        line_end = self.buf.find(CRLF, start)
        if line_end < 0:
            if len(self.buf) - start > MAX_LINE_BYTES:
                raise ProtocolError("nats: line too long")
            return start
        line = bytes(self.buf[start:line_end])
        body = line_end + len(CRLF)
        try:
            if line.startswith((b"HMSG ", b"MSG ")):
                words = line.split(b" ")
                return await self._message(start, body, words, with_header=words[0] == b"HMSG")
            await self._control(line)
        except (ValueError, IndexError) as error:
            # nats-py would end its read loop and stay "connected"; this makes it reconnect.
            raise ProtocolError(f"nats: {error}") from error
        return body

    async def _message(self, start: int, body: int, words: list[bytes], with_header: bool) -> int:
        total = int(words[-1])
        end = body + total + len(CRLF)
        if len(self.buf) < end:
            return start
        header_bytes = int(words[-2]) if with_header else 0
        split = body + header_bytes
        header, payload = bytes(self.buf[body:split]), bytes(self.buf[split : body + total])
        sid = int(words[2])
        reply = words[3] if len(words) == (6 if with_header else 5) else b""
        raw = self.nc.raw_handlers.get(sid)
        if raw is not None:
            raw(words[1], reply, header, payload)
        else:
            await self.nc._process_msg(sid, words[1], reply, payload, header)
        return end

    async def _control(self, line: bytes) -> None:
        word = line[:5].strip().upper()
        if word == b"PING":
            await self.nc._process_ping()
        elif word == b"PONG":
            await self.nc._process_pong()
        elif word == b"INFO":
            await self.nc._process_info(json.loads(line[5:]))
        elif word == b"-ERR":
            await self.nc._process_err(line[5:].decode("utf-8", "replace").strip().lower())
        elif word != b"+OK":
            raise ProtocolError("nats: unknown protocol")


class TolerantClient(Client):
    """A nats-py client that no stored message can break."""

    def __init__(self) -> None:
        super().__init__()
        self.raw_handlers: dict[int, RawHandler] = {}
        """By subscription id: who gets the messages as bytes, at once."""
        self._ps = TolerantParser(self)

    async def _attempt_reconnect(self) -> None:
        """Reconnect; what nats-py does not expect here would end its only task that tries."""
        while True:
            try:
                return await super()._attempt_reconnect()
            except Exception as error:  # noqa: BLE001
                await self._error_cb(error)
                await asyncio.sleep(RECONNECT_PAUSE_S)

    async def _process_headers(self, headers: bytes) -> dict[str, str] | None:
        try:
            return await super()._process_headers(headers)
        except (IndexError, ValueError):
            return None  # cut short, or bytes that are no text: a message without headers

    def _build_message(self, sid: int, subject: bytes, *rest: Any) -> Any:
        readable = subject.decode("utf-8", "replace").encode()
        return super()._build_message(sid, readable, *rest)

    async def subscribe_raw(self, subject: str, handler: RawHandler) -> Any:
        """Subscribe with a handler of raw messages; returns nats-py's subscription."""
        self.raw_handlers[self._sid + 1] = handler
        subscription = await self.subscribe(subject, cb=_unused)
        assert self.raw_handlers.get(subscription._id) is handler
        return subscription

    def _remove_sub(self, sid: int, max_msgs: int = 0) -> None:
        self.raw_handlers.pop(sid, None)
        super()._remove_sub(sid, max_msgs)


async def _unused(_: Any) -> None:
    """nats-py asks for a callback even where the raw handler takes everything."""
