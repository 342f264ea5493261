"""Just enough of ClickHouse's grammar to carry a statement over to an embedded engine.

The engine takes the data of an INSERT safely only from a file (inline binary data is cut where
its multi-statement parser sees an end), so the place where data starts must be found; and an
embedded engine obeys what a server refuses: several statements in one text, files of the host.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from orca_embedded.clickhouse.errors import (
    ACCESS_DENIED,
    INTO_OUTFILE_NOT_ALLOWED,
    NOT_IMPLEMENTED,
    SYNTAX_ERROR,
    UNSUPPORTED_METHOD,
    refusal,
)
from orca_embedded.clickhouse.tokens import Token, tokenize

_BLANKS_BEFORE_DATA = re.compile(rb"[ \t\f]*\r?\n?")
_RETURNS_ROWS = {
    b"SELECT", b"WITH", b"FROM", b"(", b"SHOW", b"DESC", b"DESCRIBE", b"EXPLAIN", b"EXISTS",
    b"CHECK", b"KILL",
}  # fmt: skip
# A server reads these only below its user_files directory; an embedded engine reads any file.
_HOST_FUNCTIONS = {b"FILE", b"FILECLUSTER", b"EXECUTABLE", b"PYTHON", b"SQLITE"}


@dataclass(frozen=True, slots=True)
class InsertData:
    """Where an INSERT carries data: byte offsets into its SQL, and the data's format."""

    infile_at: int
    clause_at: int
    data_at: int
    format: str


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement: its SQL, whether it answers with rows, its FORMAT, where its data is."""

    sql: bytes
    returns_rows: bool
    format: str | None = None
    insert: InsertData | None = None

    def data(self) -> memoryview:
        """The bytes to insert, without a copy; only for an INSERT with data."""
        assert self.insert is not None
        return memoryview(self.sql)[self.insert.data_at :]

    def from_infile(self, path: str) -> bytes:
        """The same INSERT with its data in a file; ``path`` must need no quoting."""
        assert self.insert is not None
        where = self.insert
        target, settings = self.sql[: where.infile_at], self.sql[where.infile_at : where.clause_at]
        infile, clause = f" FROM INFILE '{path}' ".encode(), f" FORMAT {where.format}".encode()
        return target + infile + settings + clause


def parse(sql: bytes) -> Statement:
    """Read one statement.

    Raises ServerError: SYNTAX_ERROR for no statement or several, QUERY_IS_TOO_LARGE for over
    4 MiB without counting data, and refusals for what only an embedded engine would do.
    """
    tokens = tokenize(sql)
    first = next(tokens, None)
    if first is None:
        raise refusal(SYNTAX_ERROR, "SYNTAX_ERROR", "Empty query")
    if first.is_word(b"INSERT"):
        return _parse_insert(sql, _Cursor(tokens))
    seen = [first, *tokens]
    _refuse_what_a_server_refuses(seen)
    return Statement(sql, first.text in _RETURNS_ROWS, _trailing_format(sql, seen))


class _Cursor:
    """Tokens with one of look-ahead; ``seen`` holds all that were taken."""

    def __init__(self, tokens: Iterator[Token]) -> None:
        self._tokens = tokens
        self._ahead: Token | None = next(tokens, None)
        self.seen: list[Token] = []

    @property
    def ahead(self) -> Token | None:
        return self._ahead

    @property
    def at(self) -> int:
        """The offset past the last token taken."""
        return self.seen[-1].end if self.seen else 0

    def take(self) -> Token | None:
        taken = self._ahead
        if taken is not None:
            self.seen.append(taken)
            self._ahead = next(self._tokens, None)
        return taken

    def skip_word(self, word: bytes) -> bool:
        found = self._ahead is not None and self._ahead.is_word(word)
        if found:
            self.take()
        return found

    def skip_group(self) -> None:
        """Take one token, or a whole bracket with all that is in it."""
        first = self.take()
        if first is None or not (first.is_mark(b"(") or first.is_mark(b"{")):
            return
        while (token := self.take()) is not None and token.depth > first.depth:
            pass

    def ahead_is(self, mark: bytes) -> bool:
        return self._ahead is not None and self._ahead.is_mark(mark)


def _parse_insert(sql: bytes, cursor: _Cursor) -> Statement:
    infile_at = _skip_target(cursor)
    while (token := cursor.take()) is not None:
        if token.is_word(b"VALUES", b"FORMAT"):
            where = _locate_data(sql, cursor, token, infile_at)
            _refuse_what_a_server_refuses(cursor.seen)
            return Statement(sql, returns_rows=False, insert=where)
        if token.is_word(b"SELECT", b"WITH", b"FROM"):
            break
    _refuse_insert_from_elsewhere(cursor)
    return Statement(sql, returns_rows=False)


def _skip_target(cursor: _Cursor) -> int:
    """Step over ``[INTO] [TABLE] [FUNCTION] name [(columns)]``; returns the offset past it."""
    cursor.skip_word(b"INTO")
    cursor.skip_word(b"TABLE")
    is_function = cursor.skip_word(b"FUNCTION")
    cursor.skip_group()
    while cursor.ahead_is(b"."):
        cursor.take()
        cursor.skip_group()
    for _ in range(2 if is_function else 1):
        if cursor.ahead_is(b"("):
            cursor.skip_group()
    return cursor.at


def _locate_data(sql: bytes, cursor: _Cursor, clause: Token, infile_at: int) -> InsertData:
    if clause.text == b"VALUES":
        return InsertData(infile_at, clause.start, clause.end, "Values")
    name = cursor.ahead
    if name is None or name.kind != "word":
        raise refusal(SYNTAX_ERROR, "SYNTAX_ERROR", "FORMAT without a name in an INSERT")
    blanks = _BLANKS_BEFORE_DATA.match(sql, name.end)
    data_at = blanks.end() if blanks else name.end
    return InsertData(infile_at, clause.start, data_at, sql[name.start : name.end].decode())


def _refuse_insert_from_elsewhere(cursor: _Cursor) -> None:
    while cursor.take() is not None:
        pass
    _refuse_what_a_server_refuses(cursor.seen)
    for token, following in pairwise(cursor.seen):
        if token.text == b"INPUT" and following.is_mark(b"("):
            message = "input() is not available: the embedded engine would insert nothing"
            raise refusal(NOT_IMPLEMENTED, "NOT_IMPLEMENTED", message)


def _refuse_what_a_server_refuses(tokens: list[Token]) -> None:
    for token, following in pairwise(tokens):
        if token.is_mark(b";") and not following.is_mark(b";"):
            raise refusal(SYNTAX_ERROR, "SYNTAX_ERROR", "Multi-statements are not allowed")
        if token.text in _HOST_FUNCTIONS and following.is_mark(b"("):
            message = f"{token.text.decode().lower()}() reaches the host and is not allowed"
            raise refusal(ACCESS_DENIED, "ACCESS_DENIED", message)
        if token.is_word(b"INTO") and following.is_word(b"OUTFILE"):
            message = "INTO OUTFILE is not allowed"
            raise refusal(INTO_OUTFILE_NOT_ALLOWED, "INTO_OUTFILE_NOT_ALLOWED", message)
        if token.is_word(b"FROM") and following.is_word(b"INFILE"):
            message = "FROM INFILE is not allowed; send the data in the request body"
            raise refusal(UNSUPPORTED_METHOD, "UNSUPPORTED_METHOD", message)


def _trailing_format(sql: bytes, tokens: list[Token]) -> str | None:
    """The name after the FORMAT that ends the statement or stands before its SETTINGS."""
    tokens = [token for token in tokens if not token.is_mark(b";")]
    for index in range(len(tokens) - 1, 1, -1):
        if tokens[index].kind == "word" and tokens[index - 1].is_word(b"FORMAT"):
            rest = tokens[index + 1 :]
            ends = not rest or rest[0].is_word(b"SETTINGS")
            return sql[tokens[index].start : tokens[index].end].decode() if ends else None
    return None
