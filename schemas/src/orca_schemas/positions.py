"""Where an event stands: stream, epoch, sequence. Inputs are known by this and by nothing else."""

from __future__ import annotations

import re
from typing import Annotated, NamedTuple

from pydantic import StringConstraints

from orca_schemas import patterns
from orca_schemas.errors import MalformedError

POSITION_PATTERN = patterns.POSITION
_POSITION = re.compile(r"([A-Z][A-Z_]{1,31})@([0-9]{1,20})#([0-9]{1,20})")

PositionText = Annotated[str, StringConstraints(pattern=POSITION_PATTERN)]
"""A position as events carry it: ``CLIENT@1764571584123456789#42``."""


class Position(NamedTuple):
    """A place in a stream. ``epoch`` is the stream's creation time in Unix nanoseconds.

    A stream that was deleted and made anew has another epoch, so an old position never
    points into a new stream.
    """

    stream: str
    epoch: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.stream}@{self.epoch}#{self.sequence}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Read ``STREAM@epoch#sequence``; raises MalformedError."""
        found = _POSITION.fullmatch(text)
        if found is None:
            raise MalformedError("position", text, "write it as STREAM@epoch#sequence")
        return cls(found[1], int(found[2]), int(found[3]))


Cursor = dict[str, tuple[int, int]]
"""Done through, per input stream: ``{stream: (epoch, sequence)}``."""


def cursor_text(cursor: Cursor) -> str:
    """Write a cursor as an own event carries it: positions joined by commas, by stream name."""
    return ",".join(str(Position(s, *cursor[s])) for s in sorted(cursor))


def parse_cursor(text: str) -> Cursor:
    """Read what cursor_text wrote; raises MalformedError."""
    positions = (Position.parse(part) for part in text.split(",") if part)
    cursor: Cursor = {}
    for position in positions:
        if position.stream in cursor:
            raise MalformedError("cursor", text, f"name {position.stream} once")
        cursor[position.stream] = (position.epoch, position.sequence)
    return cursor
