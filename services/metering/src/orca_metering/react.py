"""Inputs to commands. None by type alone; nothing is refused here."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from orca_runtime.recorded import Due, Recorded, Unreadable
from orca_schemas.events.placement import AttemptEnded, Placed, Released
from orca_schemas.events.usage import CpuUsed, GpuUsed, TokensUsed
from orca_schemas.positions import Position
from orca_schemas.subjects import Stream
from orca_schemas.values import MAX_REASON_CHARS, Fault

from orca_metering.commands import (
    AcceptRecord,
    Command,
    DeadLetter,
    EndGrace,
    Forget,
    NoteAttempt,
    NoteEnd,
)
from orca_metering.timers import GRACE


def react(event: Recorded) -> Command | None:
    """Turn an input into a command."""
    about = event.subject
    match event.data:
        case TokensUsed() | GpuUsed() | CpuUsed() as usage:
            return AcceptRecord(about.namespace, about.id, about.party, event.time_ms, usage)
        case Placed(run_id=run_id, attempt=attempt, node=node):
            fence = str(event.position)
            return NoteAttempt(about.namespace, about.id, run_id, attempt, node, fence)
        case AttemptEnded(run_id=run_id, attempt=attempt, node=node, used=used):
            return NoteEnd(about.namespace, about.id, run_id, attempt, node, used, last=False)
        case Released(run_id=run_id, attempt=attempt, node=last_node, used=used):
            return NoteEnd(about.namespace, about.id, run_id, attempt, last_node, used, last=True)
        case _:
            return None


def react_unreadable(message: Unreadable) -> Command:
    """A message that is no event is put aside with what is wrong with it."""
    return DeadLetter(
        Fault(
            position=str(message.position),
            subject=message.subject[:MAX_REASON_CHARS],
            error=str(message.error)[:MAX_REASON_CHARS],
            body_sha256=message.body_sha256,
        )
    )


def react_due(due: Due) -> Command:
    """Turn a timer into a command."""
    run_id = UUID(due.entity)
    return EndGrace(run_id) if due.kind == GRACE else Forget(run_id)


def needs(event: Recorded) -> Iterable[Position]:
    """A usage record names the Placed of its attempt: that must be read before the record."""
    if not isinstance(event.data, TokensUsed | GpuUsed | CpuUsed):
        return ()
    fence = Position.parse(event.data.fence)
    return (fence,) if fence.stream == Stream.PLACEMENT else ()
