"""Positions and cursors: what is written is read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orca_schemas.errors import MalformedError
from orca_schemas.positions import Position, cursor_text, parse_cursor
from orca_schemas.subjects import Stream

NUMBERS = st.integers(0, 10**20 - 1)
CURSORS = st.dictionaries(st.sampled_from(Stream).map(str), st.tuples(NUMBERS, NUMBERS))


@given(st.sampled_from(Stream).map(str), NUMBERS, NUMBERS)
def test_a_position_is_read_back_as_it_was_written(stream, epoch, sequence) -> None:
    """Given any position, when written and read, then it is the same."""
    position = Position(stream, epoch, sequence)
    assert Position.parse(str(position)) == position


@given(CURSORS)
def test_a_cursor_is_read_back_as_it_was_written(cursor) -> None:
    """Given any cursor, when written and read, then it is the same, whatever its order."""
    assert parse_cursor(cursor_text(cursor)) == cursor
    assert cursor_text(dict(reversed(cursor.items()))) == cursor_text(cursor)


@pytest.mark.parametrize(
    "text",
    [
        "", "CLIENT", "CLIENT@1", "CLIENT#1", "client@1#1", "CLIENT@1#-1", "CLIENT@1#1 ",
        "CLIENT@1#1\n", "CLIENT@x#1", "CLIENT@1#٣", "CLIENT@1#" + "1" * 21, "CLIENT@1#1#1",
    ],
)  # fmt: skip
def test_what_is_no_position_is_refused(text) -> None:
    """Given anything else, when read, then the error shows how to write it."""
    with pytest.raises(MalformedError, match="STREAM@epoch#sequence"):
        Position.parse(text)


def test_a_cursor_names_a_stream_once() -> None:
    """Given a cursor that names a stream twice, when read, then it is refused."""
    with pytest.raises(MalformedError, match="name CLIENT once"):
        parse_cursor("CLIENT@1#1,CLIENT@1#2")
