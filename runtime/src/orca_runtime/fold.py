"""The fold of an own stream: a value that one more event turns into the next value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from orca_schemas.codec import decode, digest
from orca_schemas.errors import MalformedError, UnknownVersionError
from orca_schemas.positions import Cursor, Position, parse_cursor
from orca_schemas.subjects import parse_subject

from orca_runtime.decider import Decider
from orca_runtime.errors import IntegrityError, UnknownEventError
from orca_runtime.log import Stored
from orca_runtime.recorded import Recorded
from orca_runtime.redrive import NO_LETTERS, Letters, follow_letters

S = TypeVar("S")

NO_EVENT = "0" * 32
"""What the first event of a stream has as its predecessor's digest."""


@dataclass(frozen=True, slots=True)
class Folded(Generic[S]):
    """A state and where it stands.

    ``sequence`` is the last own event folded in, ``previous`` the digest of its bytes, ``cursor``
    what was done through in each input stream, ``time_ms`` the last own event's time (Unix ms).
    """

    state: S
    sequence: int
    previous: str
    cursor: Cursor
    time_ms: int
    letters: Letters = NO_LETTERS
    """Dead letters that nobody settled yet."""

    def done(self, stream: str) -> int:
        """The sequence done through in an input stream; 0 before the first."""
        return self.cursor.get(stream, (0, 0))[1]


def unfolded(decider: Decider[S, Any]) -> Folded[S]:
    """Begin before the first event."""
    return Folded(decider.initial, 0, NO_EVENT, {}, 0)


def to_iso(time_ms: int) -> str:
    """Write Unix ms as RFC 3339 with milliseconds, UTC."""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{time_ms % 1000:03d}Z"


def from_iso(text: str) -> int:
    """Read what to_iso wrote."""
    moment = datetime.fromisoformat(text)
    return int(moment.timestamp()) * 1000 + moment.microsecond // 1000


def fold_one(
    decider: Decider[S, Any], folded: Folded[S], stored: Stored
) -> tuple[Folded[S], Recorded]:
    """Fold one stored own event in.

    Raises IntegrityError for a hole, a message this service did not write or one that does not
    follow its predecessor, UnknownEventError for an event of a newer release.
    """
    if stored.sequence != folded.sequence + 1:
        raise IntegrityError(stored.stream, stored.sequence, f"expected {folded.sequence + 1} next")
    try:
        subject = parse_subject(stored.subject)
        envelope = decode(subject, stored.body)
    except UnknownVersionError as error:
        raise UnknownEventError(
            f"{stored.position}: {error}; start a release that reads it"
        ) from None
    except MalformedError as error:
        raise IntegrityError(
            stored.stream, stored.sequence, f"a foreign message ({error})"
        ) from None
    if (
        subject.role is not decider.role
        or envelope.previous != folded.previous
        or envelope.time is None
    ):
        raise IntegrityError(stored.stream, stored.sequence, "does not follow its predecessor")
    event = Recorded(
        position=stored.position,
        subject=subject,
        time_ms=from_iso(envelope.time),
        data=envelope.data,
        run=envelope.correlationid,
        traceparent=envelope.traceparent,
    )
    cursor = folded.cursor
    if envelope.cursor is not None:
        cursor = cursor | parse_cursor(envelope.cursor)
    return (
        Folded(  # not replace: at a million events, its search for fields is seconds
            state=decider.evolve(folded.state, event),
            sequence=stored.sequence,
            previous=digest(stored.body),
            cursor=cursor,
            time_ms=event.time_ms,
            letters=follow_letters(folded.letters, event.data, stored.sequence),
        ),
        event,
    )


def advance_cursor(cursor: Cursor, position: Position) -> Cursor:
    """Return the cursor with one input more done."""
    return cursor | {position.stream: (position.epoch, position.sequence)}
