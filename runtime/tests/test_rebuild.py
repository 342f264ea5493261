"""Rebuilding a projection on a real ClickHouse: whole before, during and after, whoever dies."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from orca_runtime import projector as projector_module
from orca_runtime import rebuild as rebuild_module
from orca_runtime.asks import Ask
from orca_runtime.clickhouse import SHADOW, ClickHouseSink, Row, TableWriter, connect
from orca_runtime.log import StreamState
from orca_runtime.memory_log import MemoryLog
from orca_runtime.projector import Projector
from orca_runtime.rebuild import Rebuilder
from orca_runtime.recorded import Recorded
from orca_runtime.testing import EPOCH
from orca_runtime.testing_clickhouse import ClickHouseServer, running_clickhouse
from orca_runtime.testing_toy import add, admin
from orca_schemas.asks import Rebuild, RebuildQuery
from orca_schemas.errors import MalformedError
from orca_schemas.events.client import TaskCancelRequested
from orca_schemas.subjects import Stream

SUMS = """
CREATE TABLE IF NOT EXISTS sums (sequence UInt64, amount UInt64)
ENGINE = ReplacingMergeTree ORDER BY sequence
"""
SEEN = """
CREATE TABLE IF NOT EXISTS seen (stream String, stream_epoch UInt64, stream_sequence UInt64)
ENGINE = ReplacingMergeTree ORDER BY (stream, stream_sequence)
"""


def sum_rows(event: Recorded) -> Iterable[Row]:
    if isinstance(event.data, TaskCancelRequested):
        yield event.position.sequence, int(event.data.reason)


def seen_rows(event: Recorded) -> Iterable[Row]:
    stream, epoch, sequence = event.position
    yield stream, epoch, sequence


WRITERS = (
    TableWriter("sums", ("sequence", "amount"), sum_rows),
    TableWriter("seen", ("stream", "stream_epoch", "stream_sequence"), seen_rows),
)


@pytest.fixture(scope="module")
def server() -> Iterator[ClickHouseServer]:
    with running_clickhouse() as started:
        yield started


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small batches, so that a rebuild has many steps; no lingering."""
    monkeypatch.setattr(projector_module, "LINGER_S", 0.01)
    monkeypatch.setattr(projector_module, "RETRY_FIRST_S", 0.02)
    monkeypatch.setattr(rebuild_module, "BATCH_ROWS", 20)
    monkeypatch.setattr(rebuild_module, "CLOSE", 30)


@dataclass
class Scene:
    """A log that grows, a projector over it, and who rebuilds what it writes."""

    url: str
    log: MemoryLog
    client: Any
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)
    total: int = 0
    count: int = 0

    def start(self, sink: ClickHouseSink | None = None) -> Rebuilder:
        """Begin to project, as a service that starts."""
        made = sink or ClickHouseSink(self.url, "p", (SUMS, SEEN), WRITERS)
        projector = Projector("p", (Stream.CLIENT, Stream.ADMIN), made)
        self.tasks.append(asyncio.create_task(projector.run(self.log, lambda: True)))
        return Rebuilder([projector], self.log, lambda: True)

    async def kill(self) -> None:
        """End all that runs, wherever it is."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.tasks.clear()

    async def say(self, numbers: Iterable[int]) -> None:
        """Events to project: numbers, and now and then an operator's."""
        for number in numbers:
            await self.log.publish(add(number))
            self.total, self.count = self.total + number, self.count + 1
            if number % 10 == 0:
                await self.log.publish(admin())
                self.count += 1

    async def found(self) -> tuple[int, int]:
        """The sum and the number of events as readers see them."""
        query = "SELECT (SELECT sum(amount) FROM sums FINAL), (SELECT count() FROM seen FINAL)"
        row = (await self.client.query(query)).result_rows[0]
        return int(row[0]), int(row[1])

    async def projected(self) -> None:
        """Wait until readers see all that was said."""
        async with asyncio.timeout(20):
            while await self.found() != (self.total, self.count):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@pytest.fixture
async def scene(server: ClickHouseServer) -> AsyncIterator[Scene]:
    client = await connect(server.url)
    for table in ("sums", "seen", f"sums{SHADOW}", f"seen{SHADOW}", "projection_cursors"):
        await client.command(f"DROP TABLE IF EXISTS {table}")
    for statement in (SUMS, SEEN):
        await client.command(statement)
    ticks = itertools.count(EPOCH, 1_000_000)
    made = Scene(server.url, MemoryLog(lambda: next(ticks)), client)
    yield made
    await made.kill()
    await client.close()


async def ask(rebuilder: Rebuilder, start: bool = False) -> Rebuild:
    answer = rebuilder.verb().answer
    found = await answer(None, RebuildQuery(start=start), Ask("_cluster", "root", 0, 0))
    assert isinstance(found, Rebuild)
    return found


async def until(rebuilder: Rebuilder, met: Callable[[Rebuild], bool]) -> Rebuild:
    async with asyncio.timeout(20):
        while not met(found := await ask(rebuilder)):  # noqa: ASYNC110
            await asyncio.sleep(0.002)
    return found


async def test_rows_that_were_lost_are_there_again(scene: Scene) -> None:
    """Given tables that lost rows and hold a wrong one, when rebuilt, then they tell the log."""
    rebuilder = scene.start()
    await scene.say(range(1, 101))
    await scene.projected()
    await scene.client.command("DELETE FROM sums WHERE sequence % 2 = 0")
    await scene.client.command("INSERT INTO seen VALUES ('FORGED', 1, 1)")
    assert await scene.found() != (scene.total, scene.count)
    await ask(rebuilder, start=True)
    done = await until(rebuilder, lambda now: now.state != "running")
    assert (done.state, done.reason) == ("done", "")
    assert await scene.found() == (scene.total, scene.count)
    assert {(part.stream, part.at, part.end) for part in done.parts} == {
        ("CLIENT", 100, 100), ("ADMIN", 10, 10),
    }  # fmt: skip
    tables = (await scene.client.query("SHOW TABLES")).result_rows
    assert not [name for (name,) in tables if name.endswith(SHADOW)]


async def test_a_tenant_rebuilds_nothing(scene: Scene) -> None:
    """The tables are everybody's: who asks from a namespace may only ask how far it is."""
    verb = scene.start().verb()
    tenant = Ask("team-alpha", "alice", 0, 0)
    with pytest.raises(MalformedError):
        await verb.answer(scene.log, RebuildQuery(start=True), tenant)
    found = await verb.answer(scene.log, RebuildQuery(), tenant)
    assert isinstance(found, Rebuild)
    assert found.state == "idle"


async def test_readers_never_see_less_while_it_is_rebuilt_under_load(scene: Scene) -> None:
    """Given events that go on being said, then the totals only ever grow, and are right at last."""
    rebuilder = scene.start()
    await scene.say(range(1, 301))
    await scene.projected()
    await ask(rebuilder, start=True)
    seen = [await scene.found()]
    number = 301
    while (await ask(rebuilder)).state == "running":
        await scene.say(range(number, number + 5))
        number += 5
        seen.append(await scene.found())
        await asyncio.sleep(0.001)
    assert (await ask(rebuilder)).state == "done"
    await scene.projected()
    assert seen == sorted(seen)
    assert min(seen)[0] >= sum(range(1, 301))
    assert number > 310, "the load went on during the rebuild"


class DyingSink(ClickHouseSink):
    """A sink whose process dies at a chosen call of a chosen step."""

    def __init__(self, url: str, step: str, number: int) -> None:
        super().__init__(url, "p", (SUMS, SEEN), WRITERS)
        self.step, self.left, self.died = step, number, asyncio.Event()

    async def _die_at(self, step: str) -> None:
        self.left -= step == self.step
        if step == self.step and self.left == 0:
            self.died.set()
            await asyncio.sleep(3600)  # cancelled here: nothing after this line happens

    async def shadow_open(self) -> None:
        await super().shadow_open()
        await self._die_at("open")

    async def shadow_write(self, batch: Any) -> None:
        await self._die_at("before write")
        await super().shadow_write(batch)
        await self._die_at("write")

    async def shadow_swap(self) -> None:
        await self._die_at("before swap")
        first, *_ = self._tables()
        client = await self._client()
        await client.command(f"EXCHANGE TABLES {first} AND {first}{SHADOW}")
        await self._die_at("swap")


@pytest.mark.parametrize(
    ("step", "number"),
    [("open", 1), ("write", 1), ("before write", 4), ("write", 6), ("before swap", 1), ("swap", 1)],
)
async def test_dying_in_the_middle_leaves_the_tables_whole(
    scene: Scene, step: str, number: int
) -> None:
    """Given a service killed within a rebuild, between two exchanges too, then nothing is missing.

    The next start projects on, and the next rebuild ends.
    """
    dying = DyingSink(scene.url, step, number)
    rebuilder = scene.start(dying)
    await scene.say(range(1, 151))
    await scene.projected()
    await ask(rebuilder, start=True)
    await dying.died.wait()
    assert rebuilder._task is not None
    scene.tasks.append(rebuilder._task)
    with contextlib.suppress(asyncio.CancelledError):
        await scene.kill()
    assert await scene.found() == (scene.total, scene.count)
    again = scene.start()
    await scene.say(range(151, 201))
    await scene.projected()
    await ask(again, start=True)
    await until(again, lambda now: now.state == "done")
    assert await scene.found() == (scene.total, scene.count)


async def test_a_rebuild_that_fails_says_why_and_changes_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a sink that refuses, then that is said, and a new one may begin."""

    async def refuse(_: Any, __: Any) -> None:
        raise RuntimeError("no room")

    rebuilder = scene.start()
    await scene.say(range(1, 51))
    await scene.projected()
    with monkeypatch.context() as patched:
        patched.setattr(ClickHouseSink, "shadow_write", refuse)
        await ask(rebuilder, start=True)
        failed = await until(rebuilder, lambda now: now.state != "running")
    assert (failed.state, failed.reason) == ("failed", "RuntimeError: no room")
    assert await scene.found() == (scene.total, scene.count)
    await ask(rebuilder, start=True)
    assert (await until(rebuilder, lambda now: now.state != "running")).state == "done"


async def test_a_second_start_joins_the_first(scene: Scene) -> None:
    """Given a rebuild that runs, when another is asked for, then it is the same one."""
    rebuilder = scene.start()
    await scene.say(range(1, 51))
    first, second = await ask(rebuilder, start=True), await ask(rebuilder, start=True)
    assert first.id == second.id
    await until(rebuilder, lambda now: now.state == "done")


async def test_rows_whose_events_expired_are_kept(scene: Scene) -> None:
    """Given a stream that begins at 6 by now, when rebuilt, then older rows are carried over."""
    scene.start()
    await scene.say(range(1, 11))
    await scene.projected()
    sink = ClickHouseSink(scene.url, "p", (SUMS, SEEN), WRITERS)
    await sink.shadow_open()
    epoch = (await scene.log.state("CLIENT")).epoch
    await sink.shadow_keep(StreamState("CLIENT", epoch, 6, 10, 5))
    await sink.shadow_keep(StreamState("ADMIN", epoch, 1, 1, 1))
    rows = (
        await scene.client.query(f"SELECT stream, stream_sequence FROM seen{SHADOW}")
    ).result_rows
    assert sorted(map(tuple, rows)) == [("CLIENT", n) for n in range(1, 6)]
    await sink.close()
