"""The embedded engine: one per process and data path, a fresh connection for every request.

A connection is a session (its USE, its SET), and opening one costs 0.1 ms; a session per request
therefore leaks nothing into the next and needs no undo.
"""

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import chdb

from orca_embedded.clickhouse.errors import from_engine
from orca_embedded.clickhouse.parameters import quote, quote_identifier, set_statement
from orca_embedded.clickhouse.statement import Statement

DEFAULT_FORMAT = "TabSeparated"
# chDB turns this on to accept a bare expression; a server does not.
_LIKE_A_SERVER = {"implicit_select": "0"}


class DataDirectoryError(Exception):
    """The data directory cannot be used; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Query:
    """One statement and the session it runs in; ``parameters`` in the interface's escaped form."""

    statement: Statement
    database: str = ""
    output_format: str = DEFAULT_FORMAT
    parameters: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """The answer's bytes, in the format asked for, and what the engine read (or wrote) for it."""

    data: bytes
    rows: int
    bytes: int
    elapsed_ns: int


class Engine:
    """ClickHouse's engine on one directory; safe to call from many threads.

    Use ``Engine.open``; ``close`` only after the last call has returned.
    """

    def __init__(self, path: Path, keeper: Any) -> None:
        self._path = path
        # The engine lives as long as any connection does; this one is held for that alone.
        self._keeper = keeper
        version, timezone, host_name = self._identity()
        self.version, self.timezone, self.host_name = version, timezone, host_name

    @classmethod
    def open(cls, data: Path) -> Self:
        """Open or create the data directory.

        Raises DataDirectoryError when it is not a directory, not writable, held by another
        process, or holds what the engine cannot load.
        """
        path = _prepare(data)
        with _captured_stderr() as captured:
            try:
                keeper = chdb.connect(str(path))
            except RuntimeError as error:
                raise DataDirectoryError(_explain(path, f"{captured()} {error}")) from error
        return cls(path, keeper)

    def close(self) -> None:
        """Flush and shut the engine; the directory may then be opened by another process."""
        self._keeper.close()

    def run(self, query: Query) -> Result:
        """Run one statement to its end; raises ServerError with the engine's own code."""
        connection = chdb.connect(str(self._path))
        try:
            return self._run_in(connection, query)
        except RuntimeError as error:
            raise from_engine(str(error)) from error
        finally:
            connection.close()

    def broken_parts(self) -> list[str]:
        """What the engine set aside as unreadable at its start, as "database.table: n parts"."""
        answer = self._keeper.query(
            "SELECT concat(database, '.', table, ': ', toString(count()), ' parts') "
            "FROM system.detached_parts WHERE startsWith(reason, 'broken') "
            "GROUP BY database, table",
            "TabSeparatedRaw",
        )
        return bytes(answer.bytes()).decode().splitlines()

    def _run_in(self, connection: Any, query: Query) -> Result:
        if query.database:
            connection.query(f"USE {quote_identifier(query.database)}", DEFAULT_FORMAT)
        connection.query(set_statement({**_LIKE_A_SERVER, **query.settings}), DEFAULT_FORMAT)
        with self._sql(query.statement) as sql:
            answer = connection.query(sql, query.output_format, params=dict(query.parameters))
            return Result(
                data=answer.bytes() or b"",
                rows=answer.rows_read(),
                bytes=answer.bytes_read(),
                elapsed_ns=int(answer.elapsed() * 1e9),
            )

    @contextlib.contextmanager
    def _sql(self, statement: Statement) -> Iterator[bytes]:
        if statement.insert is None:
            yield statement.sql
            return
        with tempfile.NamedTemporaryFile(dir=_uploads(self._path)) as upload:
            upload.write(statement.data())
            upload.flush()
            yield statement.from_infile(upload.name)

    def _identity(self) -> tuple[str, str, str]:
        answer = self._keeper.query("SELECT version(), timezone(), hostName()", "TabSeparatedRaw")
        version, timezone, host_name = bytes(answer.bytes()).decode().rstrip("\n").split("\t")
        return version, timezone, host_name


def _uploads(path: Path) -> Path:
    return path / "uploads"


def _prepare(data: Path) -> Path:
    """The real path of the directory, made if need be, with an empty place for uploads."""
    try:
        data.mkdir(parents=True, exist_ok=True)
        path = data.resolve(strict=True)
        shutil.rmtree(_uploads(path), ignore_errors=True)
        _uploads(path).mkdir()
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataDirectoryError(
            f"cannot use {data} as data directory: {reason}; give --data a directory that this "
            "user may write"
        ) from error
    if quote(str(path)) != f"'{path}'" or "?" in str(path):
        raise DataDirectoryError(f"{path} holds a quote, backslash or '?'; give --data another")
    return path


def _explain(path: Path, message: str) -> str:
    if "Cannot lock file" in message:
        return (
            f"{path} is in use by another process; stop that one, or give --data another directory"
        )
    text = " ".join(message.split())
    return (
        f"the engine cannot load {path}: {text}; move the directory away and rebuild it from the "
        "log, or restore it from a copy"
    )


@contextlib.contextmanager
def _captured_stderr() -> Iterator[Any]:
    """Hold back what the engine writes to file descriptor 2: it has the cause, the error not."""
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as sink:
        os.dup2(sink.fileno(), 2)

        def read() -> str:
            sink.seek(0)
            return sink.read().decode(errors="replace")

        try:
            yield read
        finally:
            os.dup2(saved, 2)
            os.close(saved)
