"""The high-water mark outside a stream, and what streams say of each other.

Every decider writes into its own stream how far it read the others (``cursor``). So a stream that
was rolled back is found out by those that read it, even where no snapshot remembers it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from orca_schemas.errors import MalformedError
from orca_schemas.positions import Cursor, Position, parse_cursor
from orca_schemas.subjects import Stream

from orca_runtime.errors import IntegrityError
from orca_runtime.log import MAX_APPEND_MESSAGES, EventLog, Stored, StreamState

DECIDER_STREAMS = (Stream.ADMISSION, Stream.PLACEMENT, Stream.METERING, Stream.BILLING)
LOOK_BACK = MAX_APPEND_MESSAGES
"""The last event of every append carries a cursor, so one stands among so many."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How far ``reader`` says, at its ``sequence``, that it decided the stream of ``position``."""

    reader: str
    sequence: int
    position: Position


async def cursor_at(log: EventLog, stream: str, sequence: int) -> tuple[int, Cursor] | None:
    """The newest cursor at or before a place, and where it stands; None without one.

    Raises LogUnavailableError.
    """
    for at in range(sequence, max(0, sequence - LOOK_BACK), -1):
        stored = await log.get(stream, at)
        cursor = None if stored is None else read_cursor(stored)
        if cursor is not None:
            return at, cursor
    return None


def read_cursor(stored: Stored) -> Cursor | None:
    """The cursor of a stored event; None where it carries none, or is no event at all."""
    try:
        text = json.loads(stored.body).get("cursor")
        return None if text is None else parse_cursor(text)
    except (ValueError, TypeError, AttributeError, MalformedError):
        return None


async def marks_of(log: EventLog, stream: str) -> list[Mark]:
    """What the deciders that read a stream recorded of it last."""
    marks = []
    for reader in DECIDER_STREAMS:
        if reader == stream:
            continue
        last = (await log.state(reader)).last_sequence
        found = await cursor_at(log, reader, last)
        if found is not None and stream in found[1]:
            marks.append(Mark(reader, found[0], Position(stream, *found[1][stream])))
    return marks


def check_marks(state: StreamState, marks: list[Mark]) -> None:
    """Raise IntegrityError where somebody read what the stream no longer holds.

    The marks must have been read before the state: streams only grow.
    """
    for mark in marks:
        where = f"{mark.reader} at {mark.sequence}"
        if mark.position.epoch != state.epoch:
            found = f"was made anew since {where} read it"
            raise IntegrityError(state.stream, state.last_sequence, found)
        if mark.position.sequence > state.last_sequence:
            found = f"ends here, yet {where} read it through {mark.position.sequence}"
            raise IntegrityError(state.stream, state.last_sequence, found)
