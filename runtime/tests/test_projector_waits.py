"""A projector writes every event, waits for its sink, and begins anew after a stand-down."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence

import pytest
from orca_runtime import projector as projector_module
from orca_runtime.memory_log import MemoryLog
from orca_runtime.projector import Projector
from orca_runtime.recorded import Recorded, Unreadable
from orca_runtime.testing_toy import add, admin
from orca_schemas.positions import Cursor
from orca_schemas.subjects import Stream


class ListSink:
    """Keeps what is written, and its cursor; may be away."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self.cursor: Cursor = {}
        self.away = False
        self.tries = 0
        self.closed = False

    async def open(self) -> Cursor:
        return dict(self.cursor)

    async def write(self, batch: Sequence[Recorded | Unreadable], through: Cursor) -> None:
        self.tries += 1
        if self.away:
            raise ConnectionError("the sink is away")
        self.rows += [str(one.position) for one in batch]
        self.cursor |= through

    async def close(self) -> None:
        self.closed = True


class Bench:
    """A log, a sink, a projector over two streams, and whether it is active."""

    def __init__(self) -> None:
        self.log = MemoryLog(itertools.count(1_764_547_200_000_000_000, 10**6).__next__)
        self.sink = ListSink()
        self.active = True
        self.projector = Projector("test", (Stream.CLIENT, Stream.ADMIN), self.sink)
        self.task = asyncio.create_task(self.projector.run(self.log, lambda: self.active))

    async def rows(self, count: int) -> None:
        async with asyncio.timeout(5):
            while len(set(self.sink.rows)) < count:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.002)


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    for name in ("LINGER_S", "RETRY_FIRST_S", "RETRY_LAST_S"):
        monkeypatch.setattr(projector_module, name, 0.005)
    found = Bench()
    yield found
    found.task.cancel()
    await asyncio.gather(found.task, return_exceptions=True)


async def test_every_event_is_written_in_order(bench: Bench) -> None:
    """Given events in two streams, then each stream's are written in its order."""
    await bench.log.publish(admin())
    for number in range(1200):
        await bench.log.publish(add(number))
    await bench.rows(1201)
    clients = [row for row in bench.sink.rows if row.startswith("CLIENT")]
    assert [int(row.split("#")[1]) for row in clients] == list(range(1, 1201))
    assert bench.sink.cursor["CLIENT"][1] == 1200


async def test_a_sink_that_is_away_is_waited_for_and_nothing_is_lost(bench: Bench) -> None:
    """Given a sink that fails, then the same batch is written once it is back."""
    bench.sink.away = True
    await bench.log.publish(add(1))
    async with asyncio.timeout(5):
        while bench.sink.tries < 3:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.002)
    bench.sink.away = False
    await bench.rows(1)


async def test_after_a_stand_down_every_stream_goes_on(bench: Bench) -> None:
    """Given a replica that stood by while one stream moved and the other was quiet, when it is
    active again, then both streams are projected."""
    await bench.log.publish(add(1))
    await bench.log.publish(admin())
    await bench.rows(2)
    bench.active = False
    await bench.log.publish(add(2))
    await asyncio.sleep(0.05)
    assert len(bench.sink.rows) == 2
    bench.active = True
    await bench.log.publish(add(3))
    await bench.rows(4)


async def test_a_projector_that_is_cancelled_lets_go_of_its_sink(bench: Bench) -> None:
    """Whatever it was waiting for."""
    await asyncio.sleep(0.01)
    bench.task.cancel()
    await asyncio.gather(bench.task, return_exceptions=True)
    assert bench.sink.closed
