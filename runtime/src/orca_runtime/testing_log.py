"""Helpers to test stores of streams, and the two stores behind one face that may be harmed."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Protocol, cast
from uuid import uuid4

from orca_runtime.jetstream import JetStreamLog
from orca_runtime.log import EventLog, Outgoing, Stored
from orca_runtime.memory_log import MemoryLog

_numbers = itertools.count(1)


def outgoing(stream: str, *bodies: bytes) -> list[Outgoing]:
    """Messages for a test's stream, each with a new id."""
    return [Outgoing(f"{stream.lower()}.x", body, str(uuid4())) for body in bodies]


def some(stream: str, count: int, size: int = 40) -> list[Outgoing]:
    """``count`` messages with bodies that differ."""
    return outgoing(stream, *(str(number).encode().ljust(size) for number in range(count)))


async def take(
    log: EventLog, stream: str, after: int, count: int, limit_s: float = 10
) -> list[Stored]:
    """Read ``count`` messages after a sequence, within ``limit_s``."""
    found: list[Stored] = []
    batches = cast("AsyncGenerator[Sequence[Stored], None]", log.read(stream, after))
    try:
        async with asyncio.timeout(limit_s):
            while len(found) < count:
                found += await anext(batches)
    finally:
        await batches.aclose()
    return found


async def create_stream(log: JetStreamLog, name: str, **config: Any) -> None:
    """Make a stream that, unlike Orca's own, lets a test do harm to it."""
    body = {"name": name, "subjects": [f"{name.lower()}.>"], "storage": "file", "discard": "new"}
    await broker_api(log, f"STREAM.CREATE.{name}", body | {"allow_atomic": True} | config)


async def broker_api(log: JetStreamLog, subject: str, body: dict[str, Any]) -> dict[str, Any]:
    """Ask JetStream's API, as an operator's tool does."""
    reply = await log.nc.request(f"$JS.API.{subject}", json.dumps(body).encode(), timeout=5)
    answer: dict[str, Any] = json.loads(reply.data)
    assert "error" not in answer, answer
    return answer


class Store(Protocol):
    """A store under test: ``a`` and ``b`` are two writers' own handles on the same streams."""

    a: EventLog
    b: EventLog

    async def declare(self, limit: int | None = None) -> str:
        """Make a stream; return its name."""
        ...

    async def erase(self, stream: str, sequence: int) -> None:
        """Take one message out."""
        ...

    async def recreate(self, stream: str) -> None:
        """Delete the stream and make it anew."""
        ...


class MemoryStore:
    """The log in memory; its clock counts."""

    def __init__(self) -> None:
        ticks = itertools.count(1_700_000_000_000_000_000, 1_000_000)
        self.a = self.b = self.log = MemoryLog(lambda: next(ticks))

    async def declare(self, limit: int | None = None) -> str:
        """Make a stream; return its name."""
        name = f"T{next(_numbers)}"
        self.log.declare(name, f"{name.lower()}.>", limit)
        return name

    async def erase(self, stream: str, sequence: int) -> None:
        """Take one message out."""
        self.log.erase(stream, sequence)

    async def recreate(self, stream: str) -> None:
        """Delete the stream and make it anew."""
        self.log.declare(stream, f"{stream.lower()}.>")


class JetStreamStore:
    """A real broker."""

    def __init__(self, a: JetStreamLog, b: JetStreamLog) -> None:
        self.a, self.b = a, b

    async def declare(self, limit: int | None = None) -> str:
        """Make a stream; return its name."""
        name = f"T{next(_numbers)}"
        await create_stream(self.a, name, max_msgs=limit or -1)
        return name

    async def erase(self, stream: str, sequence: int) -> None:
        """Take one message out."""
        await broker_api(self.a, f"STREAM.MSG.DELETE.{stream}", {"seq": sequence})

    async def recreate(self, stream: str) -> None:
        """Delete the stream and make it anew."""
        await broker_api(self.a, f"STREAM.DELETE.{stream}", {})
        await create_stream(self.a, stream)


def sequences(messages: Sequence[Stored]) -> list[int]:
    """Where they stand."""
    return [message.sequence for message in messages]
