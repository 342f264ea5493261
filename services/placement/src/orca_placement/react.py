"""From inputs to commands, by type alone."""

from __future__ import annotations

from orca_runtime.recorded import Due, Recorded, Unreadable
from orca_schemas.events.admission import LeaseExtended, QuotaReserved, TaskStopRequested
from orca_schemas.events.node import NodeJoined, OrderRefused, TaskFinished, TaskStarted
from orca_schemas.model import EventData

from orca_placement.commands import AnswerInput, AnswerTimer, Command, DeadLetter

ANSWERED: frozenset[type[EventData]] = frozenset(
    {
        QuotaReserved,
        LeaseExtended,
        TaskStopRequested,
        NodeJoined,
        TaskStarted,
        TaskFinished,
        OrderRefused,
    }
)


def react(event: Recorded) -> Command | None:
    """Return the command that an input gives, None where its type is none of ours."""
    return AnswerInput(event) if type(event.data) in ANSWERED else None


def react_unreadable(message: Unreadable) -> Command:
    """A message that is no event is set aside."""
    return DeadLetter(message)


def react_due(due: Due) -> Command:
    """A timer is answered like an input."""
    return AnswerTimer(due)
