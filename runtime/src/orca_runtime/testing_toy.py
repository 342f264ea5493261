"""A decider small enough to see through, to test what drives deciders.

It adds up the numbers that CLIENT cancels carry as their reason, follows ADMIN first, lets NODE
top-ups name a CLIENT position that must be read before, and can be told to set a timer or to fail.
Its own stream is METERING.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID

from orca_schemas.codec import encode
from orca_schemas.envelope import Envelope
from orca_schemas.events.admin import NamespaceSet
from orca_schemas.events.admission import TaskStopRequested
from orca_schemas.events.client import TaskCancelRequested
from orca_schemas.events.common import InputDeadLettered, Noted, NothingNoted
from orca_schemas.events.node import LeaseTopUpRequested
from orca_schemas.identifiers import CLUSTER
from orca_schemas.model import EventData
from orca_schemas.positions import Position
from orca_schemas.subjects import Kind, Role, Stream, Subject
from orca_schemas.values import Fault, Meter, Outcome
from pydantic import TypeAdapter

from orca_runtime.decider import Decider
from orca_runtime.log import Outgoing
from orca_runtime.recorded import Decided, Due, Recorded, Unreadable

TASK = "00000000-0000-4000-8000-000000000001"
RUN = UUID("00000000-0000-7000-8000-000000000001")
ALARM = "alarm"


@dataclass(frozen=True, slots=True)
class Toy:
    """The sum, what was said in order, and the alarm that is set."""

    total: int = 0
    said: tuple[str, ...] = ()
    alarm_ms: int | None = None
    alarm_kind: str = "ring"
    origin: Position | None = None


def _react(given: Recorded) -> str | None:
    match given.data:
        case TaskCancelRequested(reason=reason):
            return None if reason == "not read" else reason
        case NamespaceSet():
            return "admin"
        case LeaseTopUpRequested(fence=fence):
            return f"after {fence}"
        case _:
            return None


def _decide(state: Toy, command: str | Fault, now_ms: int) -> list[Decided]:
    if isinstance(command, Fault):
        return [Decided(CLUSTER, Kind.ACCOUNT, "metering", InputDeadLettered(fault=command))]
    word, _, rest = command.partition(" ")
    if word == "fail":
        raise ValueError("told to fail")
    if word == "many":
        return [_note("1") for _ in range(int(rest))]
    if word == "large":
        return [_large()]
    if word in ("alarm", "trap"):
        return [_note(f"{word} {now_ms + int(rest)}")]
    return [_note(command)]


def _note(about: str) -> Decided:
    return Decided("team", Kind.TASK, TASK, Noted(about=about, fact=NothingNoted()))


def _large() -> Decided:
    data = TaskStopRequested(run_id=RUN, outcome=Outcome.FAILED, message="x" * 300_000)
    return Decided("team", Kind.TASK, TASK, data)


def _evolve(state: Toy, event: Recorded) -> Toy:
    if isinstance(event.data, InputDeadLettered):
        return replace(state, said=(*state.said, f"dead: {event.data.fault.error}"))
    assert isinstance(event.data, Noted)
    about = event.data.about
    state = replace(state, said=(*state.said, about))
    word, _, rest = about.partition(" ")
    if word in ("alarm", "trap"):
        kind = "ring" if word == "alarm" else "fail"
        return replace(state, alarm_ms=int(rest), alarm_kind=kind, origin=event.position)
    if word == "ring" or about == "unset":
        return replace(state, alarm_ms=None)
    return replace(state, total=state.total + int(about)) if about.isdigit() else state


def _timers(state: Toy, _: str) -> tuple[Due, ...]:
    if state.alarm_ms is None or state.origin is None:
        return ()
    return (Due(state.alarm_ms, ALARM, state.alarm_kind, state.origin),)


def _unreadable(message: Unreadable) -> Fault:
    return Fault(
        position=str(message.position),
        subject=message.subject,
        error=str(message.error)[:1000],
        body_sha256=message.body_sha256,
    )


TOY: Decider[Toy, str | Fault] = Decider(
    role=Role.METERING,
    inputs=(Stream.CLIENT, Stream.ADMIN, Stream.NODE),
    initial=Toy(),
    state_type=TypeAdapter(Toy),
    react=_react,
    react_unreadable=_unreadable,
    react_due=lambda due: f"{due.kind} {due.at_ms}",
    decide=_decide,
    evolve=_evolve,
    timers=_timers,
    entities=lambda _: (ALARM,),
    touched=lambda _: (ALARM,),
    needs=lambda given: (
        (Position.parse(given.data.fence),) if isinstance(given.data, LeaseTopUpRequested) else ()
    ),
    read_first={Stream.CLIENT: (Stream.ADMIN,)},
)


def said(role: Role, id_: str, data: EventData, party: str = "alice") -> Outgoing:
    """A message of a user, an operator or a node, as they send it: type and data alone."""
    kind = data.KIND or Kind.TASK
    subject = Subject("team", kind, id_, role, party, type(data).__name__)
    body = encode(Envelope(type=data.type_name(), data=data))
    return Outgoing(str(subject), body, f"{subject}/{body!r}")


def add(command: object) -> Outgoing:
    """A CLIENT message: a number to add, or another command."""
    return said(Role.CLIENT, TASK, TaskCancelRequested(reason=str(command)))


def admin() -> Outgoing:
    """An ADMIN message."""
    return said(Role.ADMIN, "team", NamespaceSet(), "root")


def after(need: Position) -> Outgoing:
    """A NODE message that may be decided only once ``need`` is."""
    data = LeaseTopUpRequested(
        run_id=RUN, attempt=1, fence=str(need), meter=Meter.TOKENS, used=0, granted_tokens=0
    )
    return said(Role.NODE, TASK, data, "n1")
