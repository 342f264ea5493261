"""A projector: reads streams without a gap and writes them into an idempotent sink.

The sink keeps the cursor itself, beside the rows, so no broker's acknowledgement is trusted. Its
outage stops nobody else: the projector waits and writes the same batch again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import structlog
from orca_schemas.positions import Cursor
from orca_schemas.subjects import Stream

from orca_runtime.inbox import read_input
from orca_runtime.log import EventLog, Stored
from orca_runtime.recorded import Recorded, Unreadable

BATCH_ROWS = 5_000
"""ClickHouse wants at least 1,000 rows an insert under load."""
LINGER_S = 0.25
"""How long a batch waits for company: what a person notices as delay, at most."""
RETRY_FIRST_S = 0.5
RETRY_LAST_S = 15.0

_log = structlog.get_logger(__name__)


class Sink(Protocol):
    """Where a projection goes. Writing the same events again must change nothing."""

    async def open(self) -> Cursor:
        """Make what is missing; return what is done through, per stream."""
        ...

    async def write(self, batch: Sequence[Recorded | Unreadable], through: Cursor) -> None:
        """Write a batch of one stream, then its cursor. Raises to be called again with the same."""
        ...

    async def close(self) -> None:
        """Let go of what is open."""
        ...


class _StoodDownError(Exception):
    """This replica no longer projects."""


@dataclass
class Projector:
    """One sink over several streams."""

    name: str
    streams: tuple[Stream, ...]
    sink: Sink
    done: Cursor = field(default_factory=dict)
    """Written through, per stream."""
    gate: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held for every write; a rebuild holds it while it exchanges what is written."""

    async def run(self, log: EventLog, active: Callable[[], bool]) -> None:
        """Project until cancelled, while ``active()``; every stream on its own."""
        try:
            await self._project_all(log, active)
        finally:
            await self.sink.close()

    async def _project_all(self, log: EventLog, active: Callable[[], bool]) -> None:
        while True:
            while not active():  # noqa: ASYNC110 - a lease has no event to wait for
                await asyncio.sleep(LINGER_S)
            try:
                cursor = await self._open()
                self.done = dict(cursor)
                async with asyncio.TaskGroup() as group:
                    for stream in self.streams:
                        group.create_task(self._project(log, stream, cursor, active))
            except* _StoodDownError:
                _log.info("projection stands by", name=self.name)
            except* Exception as errors:  # noqa: BLE001 - a projection must not stop its service
                _log.error("projection interrupted", name=self.name, reason=str(errors.exceptions))
            await asyncio.sleep(RETRY_FIRST_S)

    async def _project(
        self, log: EventLog, stream: Stream, cursor: Cursor, active: Callable[[], bool]
    ) -> None:
        state = await log.state(stream)
        epoch, after = cursor.get(stream, (state.epoch, 0))
        if epoch != state.epoch:
            after = 0
        async for batch in _batches(log.read(stream, after)):
            if not active():
                # Not a return: the other streams' readers must begin anew with this one's.
                raise _StoodDownError
            inputs = [read_input(stored) for stored in batch]
            await self._write(inputs, {stream: (batch[-1].epoch, batch[-1].sequence)})

    async def _open(self) -> Cursor:
        async for wait_s in _backoff():
            try:
                return await self.sink.open()
            except Exception as error:  # noqa: BLE001 - whatever the sink's client raises
                await self._wait(error, wait_s)
        raise AssertionError("the back-off never ends")

    async def _write(self, inputs: Sequence[Recorded | Unreadable], through: Cursor) -> None:
        async for wait_s in _backoff():
            try:
                async with self.gate:
                    await self.sink.write(inputs, through)
                    self.done |= through
            except Exception as error:  # noqa: BLE001 - whatever the sink's client raises
                await self._wait(error, wait_s)
            else:
                return

    async def _wait(self, error: Exception, wait_s: float) -> None:
        _log.warning("sink waits", name=self.name, reason=str(error), retry_s=wait_s)
        await asyncio.sleep(wait_s)


async def _backoff() -> AsyncIterator[float]:
    wait_s = RETRY_FIRST_S
    while True:
        yield wait_s
        wait_s = min(RETRY_LAST_S, wait_s * 2)


async def _batches(reading: AsyncIterator[Sequence[Stored]]) -> AsyncIterator[list[Stored]]:
    """Join what a reader yields into batches of up to BATCH_ROWS, waiting LINGER_S for more."""
    waiting: asyncio.Queue[Sequence[Stored]] = asyncio.Queue(maxsize=BATCH_ROWS // 512)

    async def fill() -> None:
        async for messages in reading:
            await waiting.put(messages)

    filler = asyncio.create_task(fill())
    try:
        while True:
            batch = list(await _next(waiting, filler))
            deadline = asyncio.get_running_loop().time() + LINGER_S
            while len(batch) < BATCH_ROWS:
                try:
                    async with asyncio.timeout_at(deadline):
                        batch.extend(await waiting.get())
                except TimeoutError:
                    break
            yield batch
    finally:
        filler.cancel()
        await asyncio.gather(filler, return_exceptions=True)


async def _next(
    waiting: asyncio.Queue[Sequence[Stored]], filler: asyncio.Task[None]
) -> Sequence[Stored]:
    """The next messages, or what stopped the reader."""
    getter = asyncio.create_task(waiting.get())
    try:
        await asyncio.wait({getter, filler}, return_when=asyncio.FIRST_COMPLETED)
        if getter.done():
            return getter.result()
    finally:
        getter.cancel()
    filler.result()
    raise AssertionError("a reader never ends by itself")
