"""From inputs to an append: decide on speculative state, all or nothing.

Nothing here touches the log. If the append is refused, the result is thrown away.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar
from uuid import UUID

from orca_schemas.codec import MAX_BODY_BYTES, decode, digest, encode
from orca_schemas.envelope import Envelope
from orca_schemas.events.common import InputDeadLettered
from orca_schemas.identifiers import CLUSTER, derived_id
from orca_schemas.model import EventData
from orca_schemas.positions import Position, cursor_text
from orca_schemas.registry import EVENTS
from orca_schemas.subjects import Kind, Subject, subject
from orca_schemas.values import MAX_REASON_CHARS, Fault

from orca_runtime.decider import MAX_DECISION_EVENTS, Decider
from orca_runtime.errors import DecisionTooLargeError
from orca_runtime.fold import Folded, advance_cursor, to_iso
from orca_runtime.log import Outgoing
from orca_runtime.recorded import Decided, Due, Recorded, Unreadable
from orca_runtime.redrive import Redrive, follow_letters, refused, settled
from orca_runtime.tracing import child_of

S = TypeVar("S")

MAX_OWN_BYTES = MAX_BODY_BYTES - 4096
"""What an own event may have before the cursor is written into it (at most 2048 characters)."""


@dataclass(frozen=True, slots=True)
class Observation:
    """Something the shell saw that stands in no stream, such as silence, as a command.

    ``name`` says what in the event's ``timer``; ``origin`` is what it hangs on.
    """

    command: Any
    name: str
    origin: Position


Input = Recorded | Unreadable | Due | Observation | Redrive


@dataclass(frozen=True, slots=True)
class Cause:
    """Why events are written: the input's position and time, or the timer and what set it."""

    position: Position
    time_ms: int = 0
    timer: str | None = None
    run: str | None = None
    traceparent: str | None = None


@dataclass(frozen=True)
class Speculation(Generic[S]):
    """A folded state that is not yet in the log, and the messages that would bring it there."""

    folded: Folded[S]
    epoch: int
    outgoing: tuple[Outgoing, ...] = ()
    events: tuple[Recorded, ...] = ()
    causes: tuple[Cause, ...] = ()
    """For each event, what it was caused by."""
    size_bytes: int = 0
    """Of all bodies in ``outgoing``."""
    skipped: int = 0
    """Inputs of types that this decider does not read."""


def cause_of(given: Input) -> Cause:
    """What an input's events name as their cause."""
    match given:
        case Recorded():
            return Cause(given.position, given.time_ms, None, given.run, given.traceparent)
        case Unreadable():
            return Cause(given.position, given.time_ms)
        case Due():
            return Cause(given.origin, timer=f"{given.kind}/{given.entity}/{given.at_ms}")
        case Observation():
            return Cause(given.origin, timer=given.name)
        case Redrive(request=request, again=again):
            of_input = cause_of(again) if again else cause_of(request)
            return replace(of_input, position=request.position, time_ms=request.time_ms)


def speculate(
    decider: Decider[S, Any], spec: Speculation[S], given: Input, now_ms: int
) -> Speculation[S]:
    """Decide one input on the speculative state. A decision that raises dead-letters its input."""
    folded = spec.folded
    now = max(now_ms, folded.time_ms)
    read = given.request if isinstance(given, Redrive) else given
    if isinstance(read, Recorded | Unreadable):
        folded = replace(folded, cursor=advance_cursor(folded.cursor, read.position))
    spec = replace(spec, folded=folded)
    try:
        decided = _decide(decider, folded.state, given, now)
        if not decided:
            return replace(spec, skipped=spec.skipped + 1)
        return _record(decider, spec, decided, cause_of(given), now)
    except Exception as error:  # noqa: BLE001 - the one place where a bug must not stop the stream
        letter = dead_letter(decider, given, f"{type(error).__name__}: {error}")
        return _record(decider, spec, [letter], cause_of(given), now)


def _decide(decider: Decider[S, Any], state: S, given: Input, now: int) -> list[Decided]:
    """The events that answer an input; none where its type is not read here."""
    if isinstance(given, Redrive):
        if given.refusal:
            return refused(decider, given)
        again = given.again
        return settled(decider, given, _decide(decider, state, again, now) if again else ())
    command = _command(decider, given)
    if command is None:
        return []
    decided = decider.decide(state, command, now)
    assert decided, "a decision leaves at least one event"
    if len(decided) > MAX_DECISION_EVENTS:
        raise DecisionTooLargeError(f"{len(decided)} events in one decision")
    return decided


def _command(decider: Decider[S, Any], given: Recorded | Unreadable | Due | Observation) -> Any:
    if isinstance(given, Recorded | Unreadable) and given.position.stream not in decider.inputs:
        return None
    match given:
        case Recorded():
            return decider.react(given)
        case Unreadable():
            return decider.react_unreadable(given)
        case Due():
            return decider.react_due(given)
        case Observation():
            return given.command


def dead_letter(decider: Decider[Any, Any], given: Input, error: str) -> Decided:
    """The event that says an input can never be handled."""
    if isinstance(given, Redrive) and given.again is not None:
        given = given.again
    cause = cause_of(given)
    fault = Fault(
        position=str(cause.position),
        subject=str(getattr(given, "subject", cause.timer or ""))[:MAX_REASON_CHARS],
        error=error[:MAX_REASON_CHARS],
        body_sha256=given.body_sha256 if isinstance(given, Unreadable) else "0" * 64,
    )
    return Decided(CLUSTER, Kind.ACCOUNT, decider.role.value, InputDeadLettered(fault=fault))


def _record(
    decider: Decider[S, Any], spec: Speculation[S], decided: list[Decided], cause: Cause, now: int
) -> Speculation[S]:
    folded, outgoing, events = spec.folded, list(spec.outgoing), list(spec.events)
    for index, one in enumerate(decided):
        event_subject = _subject(decider, one)
        event_id = _event_id(decider, folded, cause, index, now)
        run = str(one.run) if one.run else cause.run
        envelope = _envelope(decider, folded, one, cause, event_id, now, run)
        body = encode(envelope)
        if len(body) > MAX_OWN_BYTES:
            raise DecisionTooLargeError(f"{event_subject.event} has {len(body)} bytes")
        outgoing.append(Outgoing(str(event_subject), body, str(event_id)))
        position = Position(decider.stream, spec.epoch, folded.sequence + 1)
        data = _as_read(event_subject, one.data, body)
        event = Recorded(position, event_subject, now, data, run, envelope.traceparent)
        events.append(event)
        folded = replace(
            folded,
            state=decider.evolve(folded.state, event),
            sequence=position.sequence,
            previous=digest(body),
            time_ms=now,
            letters=follow_letters(folded.letters, data, position.sequence),
        )
    return replace(
        spec,
        folded=folded,
        outgoing=tuple(outgoing),
        size_bytes=sum(len(one.body) for one in outgoing[len(spec.outgoing) :]) + spec.size_bytes,
        events=tuple(events),
        causes=spec.causes + (cause,) * len(decided),
    )


def _as_read(where: Subject, data: EventData, body: bytes) -> EventData:
    """What a reader makes of an event: one said in an older version is read as the newest.

    A release that reads v+1 still says v, and must fold its own words as it will read them.
    """
    return data if type(data) is EVENTS.get(where.event) else decode(where, body).data


def _event_id(
    decider: Decider[Any, Any], folded: Folded[Any], cause: Cause, index: int, now: int
) -> UUID:
    """Derive the id from what caused the event; an input is decided once, so that is unique.

    A timer or observation may recur for the same origin: there the own sequence tells them apart.
    """
    if cause.timer is None:
        return derived_id(cause.time_ms, decider.stream, cause.position, index)
    return derived_id(now, decider.stream, cause.position, cause.timer, folded.sequence + 1)


def _subject(decider: Decider[Any, Any], one: Decided) -> Subject:
    name = type(one.data).__name__
    return subject(one.namespace, Kind(one.kind), one.id, decider.role, one.party, name)


def _envelope(
    decider: Decider[Any, Any],
    folded: Folded[Any],
    one: Decided,
    cause: Cause,
    event_id: UUID,
    now: int,
    run: str | None,
) -> Envelope[Any]:
    return Envelope(
        id=event_id,
        source=f"orca/{decider.role.value}",
        type=one.data.type_name(),
        time=to_iso(now),
        datacontenttype="application/json",
        cause=str(cause.position),
        timer=cause.timer,
        correlationid=run,
        previous=folded.previous,
        traceparent=child_of(cause.traceparent, run or str(cause.position), event_id),
        data=one.data,
    )


def seal(decider: Decider[S, Any], spec: Speculation[S]) -> Speculation[S]:
    """Write the cursor into the last event of the append, and the digest that follows from it."""
    if not spec.outgoing:
        return spec
    last = spec.outgoing[-1]
    attribute = f',"cursor":"{cursor_text(spec.folded.cursor)}"}}'
    body = last.body[:-1] + attribute.encode()
    sealed = replace(last, body=body)
    return replace(
        spec,
        outgoing=(*spec.outgoing[:-1], sealed),
        folded=replace(spec.folded, previous=digest(body)),
    )
