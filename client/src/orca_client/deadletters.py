"""Dead letters: what services could not handle, and what an operator wants done about it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from orca_schemas.asks import DeadLetterQuery, DeadLetterRow, DeadLetters
from orca_schemas.events.admin import DeadLetterDropRequested, RedriveRequested
from orca_schemas.identifiers import CLUSTER
from orca_schemas.positions import Position
from orca_schemas.subjects import Kind, Role, Stream, subject

from orca_client.connection import Connection
from orca_client.errors import NoAnswerError, NotFoundError
from orca_client.listen import answers_about
from orca_client.submit import body_of

DECIDERS = (Role.ADMISSION, Role.PLACEMENT, Role.METERING, Role.BILLING)

Request = type[RedriveRequested] | type[DeadLetterDropRequested]


async def open_letters(
    connection: Connection, services: Sequence[str], query: DeadLetterQuery | None = None
) -> list[DeadLetters]:
    """What each service says of its open letters. Raises NoAnswerError, RefusedError."""
    return await asyncio.gather(
        *(connection.ask(DeadLetters, name, "deadletters", query) for name in services)
    )


async def find_letter(
    connection: Connection, position: str, service: str | None = None
) -> DeadLetterRow:
    """The open letter of the input at ``position``, with its body.

    Raises MalformedError; NotFoundError where no service has it, or several have.
    """
    Position.parse(position)
    services = [service] if service else [role.value for role in DECIDERS]
    answers = await open_letters(connection, services, DeadLetterQuery(position=position))
    found = [row for answer in answers for row in answer.letters]
    if not found:
        raise NotFoundError(f"{position}: no open dead letter; see orca deadletter list")
    if len(found) > 1:
        names = ", ".join(row.service for row in found)
        raise NotFoundError(f"{position}: a dead letter of {names}; say which with --service")
    return found[0]


async def settle(
    connection: Connection, letter: DeadLetterRow, request: Request
) -> tuple[bool, str]:
    """Ask the service to redrive or drop; returns whether it is settled, and its words.

    Raises RefusedError, NotStoredError, NoAnswerError.
    """
    role = Role(letter.service)
    data = request(position=letter.position)
    where = subject(
        CLUSTER, Kind.ACCOUNT, letter.service, Role.ADMIN, connection.user, type(data).__name__
    )
    async with answers_about(connection, CLUSTER, Kind.ACCOUNT, letter.service, role) as answers:
        sequence = await connection.publish(where, body_of(data))
        event, answer = await answers.to(sequence, Stream.ADMIN)
    if event == "InputDeadLettered":
        return False, str(answer.get("fault", {}).get("error"))
    settled = answer.get("fact", {}).get("kind") == "letter"
    return settled, str(answer.get("about"))


async def count(connection: Connection) -> int | None:
    """How many letters are open in all; None where a service does not answer."""
    try:
        answers = await open_letters(
            connection, [role.value for role in DECIDERS], DeadLetterQuery(limit=1)
        )
    except NoAnswerError:
        return None
    return sum(answer.total for answer in answers)
