"""Events with their place: what react and evolve are given."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from uuid import UUID

from orca_schemas.codec import decode
from orca_schemas.errors import MalformedError
from orca_schemas.model import EventData
from orca_schemas.positions import Position
from orca_schemas.subjects import Subject, parse_subject

from orca_runtime.log import Stored


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event of the log, read and checked.

    ``time_ms`` (Unix ms) is the broker's time for an input and the decision's time for an own
    event. ``run`` is the correlation id, ``cause`` the position of what the event answers.
    """

    position: Position
    subject: Subject
    time_ms: int
    data: EventData
    run: str | None = None
    traceparent: str | None = None
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A message that is no event: kept as an input, so that a decision can answer it."""

    position: Position
    subject: str
    time_ms: int
    error: MalformedError
    body_sha256: str

    def parsed_subject(self) -> Subject | None:
        """The subject in parts, if at least that is in order."""
        try:
            return parse_subject(self.subject)
        except MalformedError:
            return None


@dataclass(frozen=True, slots=True)
class Due:
    """A timer: ``kind`` falls due for ``entity`` at ``at_ms``. ``origin`` is what set it."""

    at_ms: int
    entity: str
    kind: str
    origin: Position


@dataclass(frozen=True, slots=True)
class Decided:
    """One event that a decision wants appended: its data, and whom it is about.

    ``subject`` need only say namespace, kind and id right: the shell fills in role, party and
    event. ``party`` is the addressed node for orders.
    """

    namespace: str
    kind: str
    id: str
    data: EventData
    run: UUID | None = None
    party: str = "-"


def recorded(stored: Stored) -> Recorded:
    """Read a message as an event; raises MalformedError."""
    subject = parse_subject(stored.subject)
    if subject.stream != stored.stream:
        raise MalformedError("subject", stored.subject, f"does not belong in {stored.stream}")
    envelope = decode(subject, stored.body)
    return Recorded(
        position=stored.position,
        subject=subject,
        time_ms=stored.time_ms,
        data=envelope.data,
        run=envelope.correlationid,
        traceparent=envelope.traceparent,
        cause=envelope.cause,
    )


def unreadable(stored: Stored, error: MalformedError) -> Unreadable:
    """Keep a message that is no event, with the reason."""
    return Unreadable(
        position=stored.position,
        subject=stored.subject,
        time_ms=stored.time_ms,
        error=error,
        body_sha256=sha256(stored.body).hexdigest(),
    )
