"""From inputs and timers to commands; by type alone."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from orca_runtime.recorded import Due, Recorded, Unreadable
from orca_schemas.events.admin import NamespaceSet, QuotaSet
from orca_schemas.events.client import TaskCancelRequested, TaskSubmitted
from orca_schemas.events.metering import UsageSettled
from orca_schemas.events.node import LeaseTopUpRequested
from orca_schemas.events.placement import AttemptEnded, Placed, Released
from orca_schemas.identifiers import run_id
from orca_schemas.positions import Position
from orca_schemas.spec import spec_of
from orca_schemas.subjects import Stream

from orca_admission.commands import (
    AnswerUnreadable,
    Cancel,
    Command,
    ExtendLease,
    Forget,
    KnowNamespace,
    NoteAttempt,
    NoteEnd,
    Origin,
    Release,
    Rescan,
    SetLimit,
    Settle,
    Submit,
)

RESCAN = "rescan"
FORGET = "forget"
QUEUE_PREFIX = "queue/"


def react(given: Recorded) -> Command | None:
    """The command that an input asks for; None for what admission does not read."""
    origin = Origin(given.position, given.subject)
    match given.data:
        case TaskSubmitted(manifest=manifest):
            run = run_id(given.position, given.time_ms)
            return Submit(origin, run, spec_of(manifest, given.subject.party))
        case TaskCancelRequested(reason=reason):
            return Cancel(origin, reason)
        case NamespaceSet(admins=admins):
            return KnowNamespace(origin, admins)
        case QuotaSet() as data:
            return SetLimit(origin, data.dimension, data.period, data.limit)
        case LeaseTopUpRequested() as data:
            return ExtendLease(origin, data.run_id, data.attempt, data.fence, data.meter, data.used)
        case _:
            return _react_to_services(origin, given)


def _react_to_services(origin: Origin, given: Recorded) -> Command | None:
    match given.data:
        case Placed() as data:
            return NoteAttempt(origin, data.run_id, data.attempt, data.node, str(given.position))
        case AttemptEnded() as data:
            return NoteEnd(origin, data.run_id, data.attempt, data.node, data.used)
        case Released() as data:
            return Release(origin, data.run_id, data.outcome)
        case UsageSettled() as data:
            return Settle(origin, data.run_id, data.used_tokens, data.final)
        case _:
            return None


def react_unreadable(message: Unreadable) -> Command:
    """A message that is no event is answered like any other input."""
    return AnswerUnreadable(message)


def react_due(due: Due) -> Command:
    """The command of a timer that fell due."""
    if due.kind == RESCAN:
        return Rescan(due.entity.removeprefix(QUEUE_PREFIX))
    assert due.kind == FORGET, f"admission sets no timer {due.kind}"
    return Forget(UUID(due.entity))


def needs(given: Recorded) -> Iterable[Position]:
    """A top-up can be judged only once the Placed that it names is read."""
    if not isinstance(given.data, LeaseTopUpRequested):
        return ()
    fence = Position.parse(given.data.fence)
    return (fence,) if fence.stream == Stream.PLACEMENT else ()
