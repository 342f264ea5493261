"""A projector's sink in ClickHouse: rows of events, and beside them how far the log is written.

What makes a replay harmless is the key of the tables: ReplacingMergeTree keeps one row per key,
and a row's key, partition and columns are functions of its event alone. ClickHouse's own block
de-duplication is switched off: it drops a batch that it has seen before even where the rows were
deleted since, so that a rebuild after a DELETE would lose them without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any
from urllib.parse import unquote, urlsplit

import clickhouse_connect
from orca_schemas.positions import Cursor
from orca_schemas.subjects import Stream

from orca_runtime.errors import UnknownEventError
from orca_runtime.log import StreamState
from orca_runtime.recorded import Recorded, Unreadable

SHADOW = "_rebuild"
"""What the name of a table ends with that is built anew beside the one that is read."""
CONNECT_TIMEOUT_S = 5
ANSWER_TIMEOUT_S = 60
HTTP_PORT = 8123
HTTPS_PORT = 8443

SETTINGS: Mapping[str, object] = {
    # Acknowledged means stored: no insert waits in the server's buffer.
    "async_insert": 0,
    # Known since 26.2, where it overrides insert_deduplicate.
    "deduplicate_insert": "disable",
}

CURSORS = """
CREATE TABLE IF NOT EXISTS projection_cursors
(
    projector LowCardinality(String),
    stream LowCardinality(String),
    epoch UInt64,
    sequence UInt64,
    written_at DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = ReplacingMergeTree(sequence)
ORDER BY (projector, stream, epoch)
"""
CURSOR_COLUMNS = ("projector", "stream", "epoch", "sequence")

DECIDER_STREAMS = frozenset({Stream.ADMISSION, Stream.PLACEMENT, Stream.METERING, Stream.BILLING})
"""Streams that only Orca writes: a message there that is no event is never skipped."""

Row = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class TableWriter:
    """One table and the rows that an event gives it, in the order of ``columns``.

    ``rows`` is a pure function of the event. An event that the table does not hold gives none.
    """

    table: str
    columns: tuple[str, ...]
    rows: Callable[[Recorded], Iterable[Row]]


def statements(package: str) -> list[str]:
    """Read the SQL files of a package's ``sql`` folder, one statement each, by file name."""
    folder = files(package) / "sql"
    found = sorted((file for file in folder.iterdir()), key=lambda file: file.name)
    return [file.read_text(encoding="utf-8") for file in found if file.name.endswith(".sql")]


async def connect(url: str) -> Any:
    """Connect to ``http[s]://[user[:password]@]host[:port][/database]``.

    Returns clickhouse-connect's AsyncClient. It holds no session, so it may be used by many
    tasks at once. Raises what clickhouse-connect raises where nobody answers.
    """
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    return await clickhouse_connect.get_async_client(
        host=parts.hostname,
        port=parts.port or (HTTPS_PORT if secure else HTTP_PORT),
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password or ""),
        database=parts.path.strip("/") or "default",
        secure=secure,
        compress="lz4",
        connect_timeout=CONNECT_TIMEOUT_S,
        send_receive_timeout=ANSWER_TIMEOUT_S,
        autogenerate_session_id=False,
        settings=dict(SETTINGS),
    )


class ClickHouseSink:
    """Writes events into tables and keeps the cursor in ``projection_cursors``.

    ``name`` is the projector's, unique among all that write to the database; ``schema`` are
    statements that may be run again at any time. Errors of ClickHouse go to the caller, who
    writes the same batch again. Safe for several streams at once.
    """

    def __init__(
        self, url: str, name: str, schema: Sequence[str], writers: Sequence[TableWriter]
    ) -> None:
        self._url, self._name = url, name
        self._schema, self._writers = (CURSORS, *schema), tuple(writers)
        self._connected: Any = None

    async def open(self) -> Cursor:
        """Make the tables and views; return what is done through, per stream."""
        client = await self._client()
        for statement in self._schema:
            await client.command(statement)
        answer = await client.query(
            "SELECT stream, epoch, max(sequence) FROM projection_cursors"
            " WHERE projector = {projector:String} GROUP BY stream, epoch ORDER BY epoch",
            parameters={"projector": self._name},
        )
        return {stream: (epoch, sequence) for stream, epoch, sequence in answer.result_rows}

    async def write(self, batch: Sequence[Recorded | Unreadable], through: Cursor) -> None:
        """Write the batch's rows, then the cursor. Raises UnknownEventError before any row."""
        client = await self._insert(batch, "")
        cursors = [(self._name, stream, *done) for stream, done in sorted(through.items())]
        await client.insert("projection_cursors", cursors, column_names=CURSOR_COLUMNS)

    async def _insert(self, batch: Sequence[Recorded | Unreadable], suffix: str) -> Any:
        events = list(_events(batch))
        client = await self._client()
        for writer in self._writers:
            rows = [row for event in events for row in writer.rows(event)]
            if rows:
                await client.insert(writer.table + suffix, rows, column_names=writer.columns)
        return client

    async def shadow_open(self) -> None:
        """Make an empty shadow of each table; see rebuild."""
        client = await self._client()
        for statement in self._schema:
            await client.command(statement)
        for table in self._tables():
            # Not SYNC: the embedded engine then waits for a minute.
            await client.command(f"DROP TABLE IF EXISTS {table}{SHADOW}")
            await client.command(f"CREATE TABLE {table}{SHADOW} AS {table}")

    async def shadow_keep(self, state: StreamState) -> None:
        """Copy the rows whose events expired from the log since they were written."""
        client = await self._client()
        for writer in self._writers:
            if state.first_sequence <= 1 or "stream" not in writer.columns:
                continue
            columns = ", ".join(writer.columns)
            await client.command(
                f"INSERT INTO {writer.table}{SHADOW} ({columns})"  # noqa: S608 - names of ours
                f" SELECT {columns} FROM {writer.table} FINAL WHERE stream = {{stream:String}}"
                " AND (stream_epoch != {epoch:UInt64} OR stream_sequence < {first:UInt64})",
                parameters={
                    "stream": state.stream,
                    "epoch": state.epoch,
                    "first": state.first_sequence,
                },
            )

    async def shadow_write(self, batch: Sequence[Recorded | Unreadable]) -> None:
        """Write a batch's rows into the shadow, without a cursor."""
        await self._insert(batch, SHADOW)

    async def shadow_swap(self) -> None:
        """Exchange each table with its shadow, which is at least as far, and drop the old."""
        client = await self._client()
        for table in self._tables():
            await client.command(f"EXCHANGE TABLES {table} AND {table}{SHADOW}")
        for table in self._tables():
            await client.command(f"DROP TABLE IF EXISTS {table}{SHADOW}")

    def _tables(self) -> list[str]:
        return sorted({writer.table for writer in self._writers})

    async def close(self) -> None:
        """Let go of the connection; the next call makes a new one."""
        client, self._connected = self._connected, None
        if client is not None:
            await client.close()

    async def _client(self) -> Any:
        if self._connected is None:
            self._connected = await connect(self._url)
        return self._connected


def _events(batch: Iterable[Recorded | Unreadable]) -> Iterable[Recorded]:
    """The events of a batch. Clients and nodes may send rubbish; a decider answers it."""
    for one in batch:
        if isinstance(one, Recorded):
            yield one
        elif one.position.stream in DECIDER_STREAMS:
            raise UnknownEventError(f"{one.position} is not written: {one.error}")
