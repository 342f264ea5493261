"""Dead letters that an operator asks about: decided again, or let go of. The same in all deciders.

Which letters are open is part of the fold (``Folded.letters``), so that a request is judged by the
service's own events alone and an input is never decided twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from immutables import Map
from orca_schemas.events.admin import DeadLetterDropRequested, RedriveRequested
from orca_schemas.events.common import InputDeadLettered, LetterNoted, Noted, NothingNoted
from orca_schemas.identifiers import CLUSTER
from orca_schemas.model import EventData
from orca_schemas.positions import Cursor, Position
from orca_schemas.subjects import Kind

from orca_runtime.decider import AnyDecider
from orca_runtime.inbox import read_input
from orca_runtime.log import EventLog
from orca_runtime.recorded import Decided, Recorded, Unreadable

Letters = Map[str, int]
"""Open dead letters: the input's position to the own sequence of the event that says so."""
NO_LETTERS: Letters = Map()
MAX_LETTERS = 10_000
"""Open letters that a service remembers (about 1 MB): then the oldest is forgotten. Its event
stays in the log, but it can be redriven no more."""


@dataclass(frozen=True, slots=True)
class Redrive:
    """An operator's request about a letter, with what it needs read from the log.

    ``again`` is the input to decide again; None where it is dropped, or where ``refusal`` says why
    the request changes nothing.
    """

    request: Recorded
    position: str
    again: Recorded | Unreadable | None = None
    refusal: str = ""


def follow_letters(letters: Letters, data: EventData, own_sequence: int) -> Letters:
    """Bring the open letters up to one more own event."""
    match data:
        case InputDeadLettered(fault=fault):
            letters = letters.set(fault.position, own_sequence)
            if len(letters) > MAX_LETTERS:
                oldest = min(letters, key=lambda position: letters[position])
                letters = letters.delete(oldest)
        case Noted(fact=LetterNoted(position=position)) if position in letters:
            letters = letters.delete(position)
    return letters


def is_request(decider: AnyDecider, given: object) -> bool:
    """Whether an input asks this very service about one of its dead letters."""
    return (
        isinstance(given, Recorded)
        and isinstance(given.data, RedriveRequested | DeadLetterDropRequested)
        and (given.subject.namespace, given.subject.id) == (CLUSTER, decider.role.value)
    )


async def prepare(
    decider: AnyDecider, log: EventLog, request: Recorded, letters: Letters, done: Cursor
) -> Redrive:
    """Read what a request needs. Only for one whose predecessors are all in the log.

    Raises LogUnavailableError.
    """
    data = request.data
    assert isinstance(data, RedriveRequested | DeadLetterDropRequested)
    if data.position not in letters:
        why = f"{data.position} is no open dead letter of {decider.role}"
        return Redrive(request, data.position, refusal=why)
    if isinstance(data, DeadLetterDropRequested):
        return Redrive(request, data.position)
    position = Position.parse(data.position)
    if position.stream not in decider.reads:
        why = f"{data.position} set a timer; timers that failed are tried again at the next start"
        return Redrive(request, data.position, refusal=why)
    again = await _read(log, position)
    missing = None if again is None else _missing(decider, again, done)
    if again is None:
        why = f"the log no longer holds {data.position}"
        return Redrive(request, data.position, refusal=why)
    if missing is not None:
        why = f"{data.position} needs {missing}, which is not there"
        return Redrive(request, data.position, refusal=why)
    return Redrive(request, data.position, again)


async def _read(log: EventLog, position: Position) -> Recorded | Unreadable | None:
    state = await log.state(position.stream)
    if state.epoch != position.epoch:
        return None
    stored = await log.get(position.stream, position.sequence)
    return None if stored is None else read_input(stored)


def _missing(decider: AnyDecider, again: Recorded | Unreadable, done: Cursor) -> Position | None:
    """A position that the input names and that no stream of this service holds."""
    if isinstance(again, Unreadable):
        return None
    for need in decider.needs(again):
        epoch, sequence = done.get(need.stream, (0, 0))
        if need.stream in decider.reads and (epoch != need.epoch or sequence < need.sequence):
            return need
    return None


def refused(decider: AnyDecider, redrive: Redrive) -> list[Decided]:
    """The request changes nothing, and why."""
    about = f"dead letter not settled: {redrive.refusal}"
    return [_about_service(decider, Noted(about=about, fact=NothingNoted()))]


def settled(decider: AnyDecider, redrive: Redrive, decided: Iterable[Decided]) -> list[Decided]:
    """What was decided, and that this settles the letter unless it is a dead letter again."""
    events = list(decided)
    if any(isinstance(one.data, InputDeadLettered) for one in events):
        return events
    dropped = redrive.again is None
    fact = LetterNoted(position=redrive.position, end="dropped" if dropped else "redriven")
    note = Noted(about=f"{redrive.position} {fact.end}", fact=fact)
    return [*events, _about_service(decider, note)]


def _about_service(decider: Any, data: EventData) -> Decided:
    return Decided(CLUSTER, Kind.ACCOUNT, decider.role.value, data)
