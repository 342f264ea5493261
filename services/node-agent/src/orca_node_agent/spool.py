"""The spool: what the node has to say, on disk before anybody hears of it.

SQLite in WAL mode with ``synchronous=FULL``: a committed change survives ``kill -9`` and power
loss. Every change is one transaction, so a usage number exists exactly when its record does.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from orca_runtime.log import Outgoing
from orca_schemas.asks import DesiredAttempt
from orca_schemas.values import Meter
from pydantic import TypeAdapter

from orca_node_agent.records import AttemptRecord, MeterState, Progress

MAX_ANSWERS_PER_ATTEMPT = 10_000
"""Of so many last reports the ids are kept: a retry comes within seconds, not 10,000 calls."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS outbox (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, subject TEXT NOT NULL, body BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS attempts (
  key TEXT PRIMARY KEY, assigned TEXT NOT NULL, progress TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS meters (
  key TEXT NOT NULL, meter TEXT NOT NULL, last_number INTEGER NOT NULL, used INTEGER NOT NULL,
  PRIMARY KEY (key, meter)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS answers (
  key TEXT NOT NULL, client_id TEXT NOT NULL, number INTEGER NOT NULL, digest TEXT NOT NULL,
  answer TEXT NOT NULL, PRIMARY KEY (key, client_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS answers_by_number ON answers (key, number);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
_EPOCH = "epoch"
_PROGRESS = TypeAdapter(Progress)


class SpoolError(Exception):
    """The disk did not take the change; nothing of it is stored. Free space, then it goes on."""


class Waiting(NamedTuple):
    """A message in the outbox, in the order of ``seq``."""

    seq: int
    message: Outgoing


class StoredAnswer(NamedTuple):
    """What a client's report was answered, and the digest of what it reported."""

    digest: str
    answer: str


@dataclass(frozen=True, slots=True)
class SpoolLimits:
    """From here on new work is refused; what runs may still finish its story."""

    max_rows: int = 100_000
    max_bytes: int = 256 * 1024 * 1024


class Change:
    """One transaction. All of it is stored, or nothing."""

    def __init__(self, database: sqlite3.Connection, records: Mapping[str, AttemptRecord]) -> None:
        self._database = database
        self._records = dict(records)
        self.rows_added = 0
        self.bytes_added = 0

    @property
    def records(self) -> dict[str, AttemptRecord]:
        """All attempts, with what this change did to them."""
        return self._records

    def save(self, record: AttemptRecord) -> None:
        """Write an attempt's record."""
        self._database.execute(
            "INSERT INTO attempts VALUES (?, ?, ?)"
            " ON CONFLICT (key) DO UPDATE SET progress = excluded.progress",
            (
                record.key,
                record.assigned.model_dump_json(),
                _PROGRESS.dump_json(record.progress).decode(),
            ),
        )
        self._records[record.key] = record

    def forget(self, key: str) -> None:
        """Drop an attempt and its meters; what it said stays in the outbox."""
        for table in ("attempts", "meters", "answers"):
            self._database.execute(f"DELETE FROM {table} WHERE key = ?", (key,))  # noqa: S608
        self._records.pop(key, None)

    def count(self, key: str, meter: Meter, amount: int) -> MeterState:
        """Take the next number of a meter and add to its sum; returns both."""
        number, used = self._database.execute(
            "INSERT INTO meters VALUES (?, ?, 1, ?) ON CONFLICT (key, meter) DO UPDATE"
            " SET last_number = last_number + 1, used = used + excluded.used"
            " RETURNING last_number, used",
            (key, meter.value, amount),
        ).fetchone()
        return MeterState(number, used)

    def meter(self, key: str, meter: Meter) -> MeterState:
        """Where a meter stands."""
        row = self._database.execute(
            "SELECT last_number, used FROM meters WHERE key = ? AND meter = ?", (key, meter.value)
        ).fetchone()
        return MeterState(*row) if row else MeterState()

    def say(self, message: Outgoing) -> None:
        """Put a message at the end of the outbox."""
        self._database.execute(
            "INSERT INTO outbox (id, subject, body) VALUES (?, ?, ?)",
            (message.id, message.subject, message.body),
        )
        self.rows_added += 1
        self.bytes_added += len(message.body)

    def drop_through(self, seq: int) -> None:
        """Take out of the outbox what the broker has."""
        rows, size = self._database.execute(
            "SELECT count(*), coalesce(sum(length(body)), 0) FROM outbox WHERE seq <= ?", (seq,)
        ).fetchone()
        self._database.execute("DELETE FROM outbox WHERE seq <= ?", (seq,))
        self.rows_added -= rows
        self.bytes_added -= size

    def keep_answer(self, key: str, number: int, client_id: str, stored: StoredAnswer) -> None:
        """Remember what the report that became ``number`` was answered; the oldest make room."""
        self._database.execute(
            "INSERT INTO answers VALUES (?, ?, ?, ?, ?)", (key, client_id, number, *stored)
        )
        self._database.execute(
            "DELETE FROM answers WHERE key = ? AND number <= ?",
            (key, number - MAX_ANSWERS_PER_ATTEMPT),
        )

    def answer(self, key: str, client_id: str) -> StoredAnswer | None:
        """What this report was answered before."""
        row = self._database.execute(
            "SELECT digest, answer FROM answers WHERE key = ? AND client_id = ?", (key, client_id)
        ).fetchone()
        return StoredAnswer(*row) if row else None

    def set_fact(self, name: str, value: str) -> None:
        """Write a named value."""
        self._database.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))


class Spool:
    """The agent's memory on disk. Not for several threads at once: see SpoolThread."""

    def __init__(self, path: Path, limits: SpoolLimits, now_ms: int) -> None:
        self._limits = limits
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=FULL")
        self._database.executescript(_SCHEMA)
        self._database.execute("INSERT OR IGNORE INTO facts VALUES (?, ?)", (_EPOCH, str(now_ms)))
        self.epoch = int(self.fact(_EPOCH) or 0)
        self._rows, self._bytes = self._database.execute(
            "SELECT count(*), coalesce(sum(length(body)), 0) FROM outbox"
        ).fetchone()
        self._records = self._read_records()

    @property
    def records(self) -> Mapping[str, AttemptRecord]:
        """Every attempt remembered, by key. A copy-on-write map: safe to keep."""
        return self._records

    @property
    def rows(self) -> int:
        """Messages that the broker does not have yet."""
        return int(self._rows)

    @property
    def full(self) -> bool:
        """Whether new work is to be refused."""
        return self.rows >= self._limits.max_rows or int(self._bytes) >= self._limits.max_bytes

    def fact(self, name: str) -> str | None:
        """Read a named value."""
        row = self._database.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return row[0] if row else None

    @contextmanager
    def change(self) -> Iterator[Change]:
        """Commit at the end of the block, or nothing if it raises. Raises SpoolError."""
        change = Change(self._database, self._records)
        try:
            self._database.execute("BEGIN IMMEDIATE")
            yield change
            self._database.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise SpoolError(f"spool: {error}; free disk space under the data directory") from error
        except BaseException:
            self._roll_back()
            raise
        self._records = change.records
        self._rows += change.rows_added
        self._bytes += change.bytes_added

    def waiting(self, limit: int) -> list[Waiting]:
        """The oldest messages of the outbox, in order."""
        rows = self._database.execute(
            "SELECT seq, subject, body, id FROM outbox ORDER BY seq LIMIT ?", (limit,)
        )
        return [Waiting(seq, Outgoing(subject, body, id_)) for seq, subject, body, id_ in rows]

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _roll_back(self) -> None:
        if self._database.in_transaction:
            self._database.execute("ROLLBACK")

    def _read_records(self) -> dict[str, AttemptRecord]:
        rows = self._database.execute("SELECT key, assigned, progress FROM attempts")
        return {
            key: AttemptRecord(
                key,
                DesiredAttempt.model_validate_json(assigned),
                _PROGRESS.validate_json(progress),
            )
            for key, assigned, progress in rows
        }
