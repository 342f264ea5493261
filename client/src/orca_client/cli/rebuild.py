"""``orca rebuild clickhouse``: the tables anew from the log, while everything runs."""

from __future__ import annotations

import time

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from orca_client.cli import exits, screen
from orca_client.cli.context import with_connection
from orca_client.connection import Connection
from orca_client.rebuild import OWNERS, rebuild

QUESTION = (
    "Rebuild the tables from the log? They stay readable; the services read the whole log for it"
)


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True, help="Make anew from the log what can be made anew.")
    group.command("clickhouse", help="All tables in ClickHouse; totals are the same afterwards.")(
        _clickhouse
    )
    app.add_typer(group, name="rebuild")


def _clickhouse(
    context: typer.Context,
    yes: bool = typer.Option(False, "--yes", "-y", help="Do not ask"),
) -> int:
    if not yes:
        typer.confirm(QUESTION, abort=True, err=True)

    async def work(connection: Connection) -> int:
        for service in OWNERS:
            await _follow(connection, service)
        return exits.FINE

    return with_connection(context, work)


async def _follow(connection: Connection, service: str) -> None:
    """Show one service's rebuild: a bar on a terminal, a line at its end."""
    began_s, events, begun = time.monotonic(), 0, 0
    with _bar() as bar:
        task = bar.add_task(service, total=None)
        async for now in rebuild(connection, service):
            if begun and now.begun != begun:
                screen.note(f"{service} was restarted; its rebuild begins again")
            events, begun = now.end, now.begun
            bar.update(task, completed=now.at, total=now.end or None)
    took_s = time.monotonic() - began_s
    screen.line(f"{service}: {events} events written anew in {took_s:.1f} s")


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("events"),
        TimeElapsedColumn(),
        console=screen.console(),
        disable=not screen.is_terminal(),
    )
