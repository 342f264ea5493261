"""What a service answers about its dead letters: those that are open, and one with its input.

A letter may hold anybody's input: they are shown to who asks from ``_cluster``, and to nobody else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from orca_schemas.asks import DeadLetterQuery, DeadLetterRow, DeadLetters
from orca_schemas.codec import decode
from orca_schemas.events.common import InputDeadLettered
from orca_schemas.identifiers import CLUSTER
from orca_schemas.positions import Position
from orca_schemas.subjects import parse_subject

from orca_runtime.asks import Ask, LogVerb
from orca_runtime.log import EventLog
from orca_runtime.redrive import NO_LETTERS
from orca_runtime.shell import DeciderShell

SHOWN_BYTES = 64 * 1024
"""Of an input's body: more would not fit one answer once it is escaped."""

Answer = Callable[[EventLog, DeadLetterQuery, Ask], Awaitable[DeadLetters]]


def deadletters(shell: DeciderShell[Any]) -> LogVerb:
    """The verb: the fold says which letters are open, the log what stands in them."""

    async def answer(log: EventLog, query: DeadLetterQuery, ask: Ask) -> DeadLetters:
        letters = shell.folded.letters if ask.namespace == CLUSTER else NO_LETTERS
        chosen = sorted(letters.items(), key=lambda letter: letter[1])
        if query.position is not None:
            chosen = [letter for letter in chosen if letter[0] == query.position]
        rows = [
            await _row(shell, log, position, own, with_body=query.position is not None)
            for position, own in chosen[: query.limit]
        ]
        return DeadLetters(letters=tuple(rows), total=len(letters))

    return LogVerb(DeadLetterQuery, answer)


async def _row(
    shell: DeciderShell[Any], log: EventLog, position: str, own: int, *, with_body: bool
) -> DeadLetterRow:
    stream = shell.decider.stream
    stored = await log.get(stream, own)
    assert stored is not None, f"{stream} holds what was folded from it"
    data = decode(parse_subject(stored.subject), stored.body).data
    assert isinstance(data, InputDeadLettered), f"{stored.position} is a dead letter"
    return DeadLetterRow(
        service=shell.decider.role.value,
        position=position,
        letter=str(stored.position),
        at_ms=stored.time_ms,
        subject=data.fault.subject,
        error=data.fault.error,
        body=await _body(shell, log, Position.parse(position)) if with_body else None,
    )


async def _body(shell: DeciderShell[Any], log: EventLog, position: Position) -> str | None:
    if position.stream not in shell.decider.reads:
        return None  # what set a timer that failed
    if (await log.state(position.stream)).epoch != position.epoch:
        return None
    stored = await log.get(position.stream, position.sequence)
    return None if stored is None else stored.body[:SHOWN_BYTES].decode("utf-8", "replace")
