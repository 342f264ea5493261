"""What every command needs: the settings, and a connection for as long as it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import typer
from pydantic import ValidationError

from orca_client.cli.exits import setting_problem
from orca_client.connection import Connection
from orca_client.settings import ClientSettings

Work = Callable[[Connection], Awaitable[int]]


def settings_of(context: typer.Context) -> ClientSettings:
    """The settings: flags over environment over defaults."""
    found = context.find_object(ClientSettings)
    assert found is not None, "the application's callback sets it"
    return found


def make_settings(**flags: str | None) -> ClientSettings:
    """Read the environment and the flags; raises typer.BadParameter."""
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        return ClientSettings(**given)  # type: ignore[arg-type]
    except ValidationError as error:
        raise typer.BadParameter(setting_problem(error)) from None


def with_connection(context: typer.Context, work: Work) -> int:
    """Do the work over a connection, and close it."""
    settings = settings_of(context)
    return asyncio.run(_connected(settings, work))


async def _connected(settings: ClientSettings, work: Work) -> int:
    password = settings.nats_password.get_secret_value() if settings.nats_password else None
    connection = await Connection.open(
        settings.nats_url, settings.user, name=settings.nats_user, password=password
    )
    async with connection:
        return await work(connection)
