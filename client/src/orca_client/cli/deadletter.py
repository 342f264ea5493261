"""``orca deadletter list|show|redrive|drop``: inputs that a service could not handle."""

from __future__ import annotations

import typer
from orca_schemas.asks import DeadLetterQuery, DeadLetterRow
from orca_schemas.events.admin import DeadLetterDropRequested, RedriveRequested
from orca_schemas.subjects import Role

from orca_client.cli import exits, screen, words
from orca_client.cli.context import with_connection
from orca_client.cli.get import JSON
from orca_client.connection import Connection
from orca_client.deadletters import DECIDERS, Request, find_letter, open_letters, settle

SHOWN = 200
SERVICE = typer.Option(None, "--service", "-s", help="Of this service only")
POSITION = typer.Argument(..., help="The input's position, such as CLIENT@176…#42")


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(
        no_args_is_help=True, help="Inputs that a service could not handle: see, retry, let go."
    )
    group.command("list", help="The open dead letters, oldest first.")(_list)
    group.command("show", help="One dead letter and the input as it was sent.")(_show)
    group.command("redrive", help="Have the service decide the input again.")(_redrive)
    group.command("drop", help="Settle the letter without deciding the input.")(_drop)
    app.add_typer(group, name="deadletter")


def _list(
    context: typer.Context,
    service: Role | None = SERVICE,
    limit: int = typer.Option(SHOWN, min=1, max=1000, help="At most so many of each service"),
    json: bool = JSON,
) -> int:
    async def work(connection: Connection) -> int:
        names = [service.value] if service else [role.value for role in DECIDERS]
        answers = await open_letters(connection, names, DeadLetterQuery(limit=limit))
        rows = [row for answer in answers for row in answer.letters]
        total = sum(answer.total for answer in answers)
        if json:
            letters = [row.model_dump(mode="json", exclude={"body"}) for row in rows]
            screen.as_json({"letters": letters, "total": total})
        elif rows:
            screen.table(
                ("SERVICE", "POSITION", "SINCE", "SUBJECT", "ERROR"), list(map(_cells, rows))
            )
        else:
            screen.note("no dead letters")
        if total > len(rows) and not json:
            screen.note(f"{total} in all; --limit shows more")
        return exits.FINE

    return with_connection(context, work)


def _cells(row: DeadLetterRow) -> tuple[str, ...]:
    return row.service, row.position, words.clock(row.at_ms), row.subject, row.error


def _show(
    context: typer.Context,
    position: str = POSITION,
    service: Role | None = SERVICE,
    json: bool = JSON,
) -> int:
    async def work(connection: Connection) -> int:
        row = await find_letter(connection, position, service.value if service else None)
        if json:
            screen.as_json(row)
            return exits.FINE
        screen.fields(
            [
                ("service", row.service),
                ("position", row.position),
                ("letter", row.letter),
                ("since", f"{words.clock(row.at_ms)} UTC"),
                ("subject", row.subject),
                ("error", row.error),
            ]
        )
        screen.line()
        screen.line("(the log no longer holds the input)" if row.body is None else row.body)
        return exits.FINE

    return with_connection(context, work)


def _redrive(
    context: typer.Context, position: str = POSITION, service: Role | None = SERVICE
) -> int:
    return _settle(context, position, service, RedriveRequested)


def _drop(context: typer.Context, position: str = POSITION, service: Role | None = SERVICE) -> int:
    return _settle(context, position, service, DeadLetterDropRequested)


def _settle(context: typer.Context, position: str, service: Role | None, request: Request) -> int:
    async def work(connection: Connection) -> int:
        letter = await find_letter(connection, position, service.value if service else None)
        settled, said = await settle(connection, letter, request)
        if settled:
            screen.line(f"{letter.service}: {said}")
            return exits.FINE
        screen.note(f"{letter.service}: {said}")
        return exits.REFUSED

    return with_connection(context, work)
