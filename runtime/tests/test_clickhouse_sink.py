"""The ClickHouse sink against a real engine: what is written twice is there once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from orca_runtime.clickhouse import ClickHouseSink, Row, TableWriter, connect
from orca_runtime.errors import UnknownEventError
from orca_runtime.recorded import Recorded, Unreadable
from orca_runtime.testing import EPOCH, an_input
from orca_runtime.testing_clickhouse import ClickHouseServer, running_clickhouse
from orca_schemas.errors import MalformedError
from orca_schemas.events.client import TaskCancelRequested
from orca_schemas.identifiers import name_id
from orca_schemas.positions import Position
from orca_schemas.subjects import Stream

SCHEMA = """
CREATE TABLE IF NOT EXISTS seen (sequence UInt64, reason String)
ENGINE = ReplacingMergeTree ORDER BY sequence SETTINGS non_replicated_deduplication_window = 100
"""
TASK = str(name_id("task", "a"))


def seen_rows(event: Recorded) -> Iterable[Row]:
    assert isinstance(event.data, TaskCancelRequested)
    yield event.position.sequence, event.data.reason


WRITER = TableWriter("seen", ("sequence", "reason"), seen_rows)
LOG = [
    an_input(Stream.CLIENT, n, TaskCancelRequested(reason=f"reason {n}"), id_=TASK)
    for n in range(1, 21)
]


def through(sequence: int, stream: Stream = Stream.CLIENT) -> dict[str, tuple[int, int]]:
    return {stream: (EPOCH, sequence)}


@pytest.fixture(scope="module")
def server() -> Iterator[ClickHouseServer]:
    with running_clickhouse() as started:
        yield started


@dataclass
class Place:
    """One sink, and a client to look at what it wrote."""

    sink: ClickHouseSink
    client: Any

    async def rows(self) -> list[Row]:
        answer = await self.client.query("SELECT sequence, reason FROM seen FINAL ORDER BY 1")
        return list(answer.result_rows)


@pytest.fixture
async def place(server: ClickHouseServer) -> AsyncIterator[Place]:
    client = await connect(server.url)
    for table in ("seen", "projection_cursors"):
        await client.command(f"DROP TABLE IF EXISTS {table}")
    sink = ClickHouseSink(server.url, "test", [SCHEMA], [WRITER])
    yield Place(sink, client)
    await sink.close()
    await client.close()


def expected(count: int) -> list[Row]:
    return [(n, f"reason {n}") for n in range(1, count + 1)]


async def test_the_first_open_makes_the_tables_and_has_nothing_done(place: Place) -> None:
    """An empty database is a valid place to begin, and opening again changes nothing."""
    assert await place.sink.open() == {}
    assert await place.sink.open() == {}
    assert await place.rows() == []


async def test_the_cursor_says_what_is_done_in_each_stream(place: Place) -> None:
    """Streams are projected on their own; each has its own cursor, and the highest counts."""
    await place.sink.open()
    await place.sink.write(LOG[:5], through(5))
    await place.sink.write(LOG[5:9], through(9))
    await place.sink.write([], through(3, Stream.NODE))
    assert await place.sink.open() == through(9) | through(3, Stream.NODE)
    assert await place.rows() == expected(9)


async def test_a_stream_made_anew_has_a_cursor_of_its_own(place: Place) -> None:
    """The newest epoch counts, however far the older one had come."""
    await place.sink.open()
    await place.sink.write(LOG[:9], through(9))
    await place.sink.write([], {Stream.CLIENT: (EPOCH + 1, 2)})
    assert await place.sink.open() == {Stream.CLIENT: (EPOCH + 1, 2)}


async def test_two_projectors_do_not_share_a_cursor(place: Place, server: ClickHouseServer) -> None:
    """The cursor is the projector's: another one begins at the beginning."""
    await place.sink.open()
    await place.sink.write(LOG[:9], through(9))
    other = ClickHouseSink(server.url, "other", [SCHEMA], [WRITER])
    assert await other.open() == {}
    await other.close()


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=6))
async def test_any_part_replayed_in_any_bounds_changes_nothing(
    place: Place, parts: list[tuple[int, int]]
) -> None:
    """Given the whole log written, when parts of it come again, then each row is there once."""
    await place.sink.open()
    await place.sink.write(LOG, through(20))
    for a, b in parts:
        first, last = min(a, b), max(a, b)
        await place.sink.write(LOG[first:last], through(last))
    assert await place.rows() == expected(20)
    assert await place.sink.open() == through(20)


class BrokenClient:
    """A client whose cursor insert fails ``failures`` times, after the rows are stored."""

    def __init__(self, client: Any, failures: int) -> None:
        self._client, self.failures = client, failures

    async def insert(self, table: str, *args: Any, **named: Any) -> None:
        if table == "projection_cursors" and self.failures:
            self.failures -= 1
            raise ConnectionError("the server went away")
        await self._client.insert(table, *args, **named)


async def test_a_failed_cursor_is_written_with_the_same_batch_again(place: Place) -> None:
    """Rows without a cursor are written again: nothing is lost and nothing is there twice."""
    await place.sink.open()
    place.sink._connected = BrokenClient(place.client, failures=2)
    for _ in range(2):
        with pytest.raises(ConnectionError):
            await place.sink.write(LOG[:7], through(7))
    await place.sink.write(LOG[:7], through(7))
    place.sink._connected = None
    assert await place.sink.open() == through(7)
    assert await place.rows() == expected(7)


async def test_rows_that_were_deleted_come_back_with_a_replay(place: Place) -> None:
    """The engine's own block de-duplication would swallow them; the sink switches it off."""
    await place.sink.open()
    await place.sink.write(LOG[:7], through(7))
    await place.client.command("DELETE FROM seen WHERE 1 SETTINGS mutations_sync = 2")
    assert await place.rows() == []
    await place.sink.write(LOG[:7], through(7))
    assert await place.rows() == expected(7)


def rubbish(stream: Stream, sequence: int) -> Unreadable:
    error = MalformedError("body", "{", "send JSON")
    return Unreadable(Position(stream, EPOCH, sequence), "orca.x", 0, error, "0" * 64)


async def test_rubbish_of_a_client_is_passed_over(place: Place) -> None:
    """A decider answers it; here it is no row, and it holds nothing up."""
    await place.sink.open()
    await place.sink.write([LOG[0], rubbish(Stream.CLIENT, 2), LOG[2]], through(3))
    assert [row[0] for row in await place.rows()] == [1, 3]


async def test_an_unknown_event_of_a_decider_stops_the_projection(place: Place) -> None:
    """A newer release wrote it: to pass over it would lose money without a word."""
    await place.sink.open()
    with pytest.raises(UnknownEventError, match="BILLING@"):
        await place.sink.write([rubbish(Stream.BILLING, 1)], through(1, Stream.BILLING))
    assert await place.sink.open() == {}


async def test_a_restarted_server_is_found_again_with_all_its_rows(
    place: Place, server: ClickHouseServer
) -> None:
    """Acknowledged is stored: a crash loses no row, and the same sink goes on afterwards."""
    await place.sink.open()
    bounds = range(0, 21, 5)
    for first, last in pairwise(bounds):
        await place.sink.write(LOG[first:last], through(last))
    server.kill()
    with pytest.raises(Exception, match=r"(?i)connect|refused|error"):
        await place.sink.write(LOG, through(20))
    server.start()
    assert await place.sink.open() == through(20)
    assert await place.rows() == expected(20)
