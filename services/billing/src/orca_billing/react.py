"""Inputs to commands. None by type alone; nothing is refused here."""

from __future__ import annotations

from uuid import UUID

from orca_runtime.recorded import Due, Recorded, Unreadable
from orca_schemas.events.admin import PriceSet
from orca_schemas.events.metering import UsageSettled
from orca_schemas.subjects import Stream
from orca_schemas.values import MAX_REASON_CHARS, Fault

from orca_billing.commands import Charge, Command, DeadLetter, Forget, LeaveToAdmission, SetPrice


def react(event: Recorded) -> Command | None:
    """Turn an input into a command."""
    about = event.subject
    match event.data:
        case UsageSettled() as settled:
            return Charge(about.namespace, about.id, settled)
        case PriceSet() as price:
            return SetPrice(about.namespace, about.id, event.position, event.time_ms, price)
        case _:
            return None


def react_unreadable(message: Unreadable) -> Command:
    """A message that is no event is put aside with what is wrong with it.

    What people say is answered once, by admission: a slip of the pen is no dead letter.
    """
    if message.position.stream == Stream.ADMIN:
        return LeaveToAdmission(str(message.error)[:MAX_REASON_CHARS])
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
    return Forget(UUID(due.entity))
