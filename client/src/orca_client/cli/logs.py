"""``orca logs``: what a task wrote."""

from __future__ import annotations

import asyncio
import sys

import typer
from orca_schemas.asks import LogLine, LogQuery, Logs

from orca_client.cli import exits, screen
from orca_client.cli.context import with_connection
from orca_client.connection import Connection
from orca_client.view import TaskView, find, view_of

POLL_S = 0.3
QUIET_ROUNDS = 4
"""Rounds without output after the end before it is taken to be all: output travels by itself."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("logs", help="Print what a task wrote; -f follows it to its end.")(_logs)


def _logs(
    context: typer.Context,
    task: str = typer.Argument(..., help="The task's id, or how it begins"),
    follow: bool = typer.Option(False, "--follow", "-f", help="Go on until the task has ended"),
) -> int:
    async def work(connection: Connection) -> int:
        view = await find(connection, task)
        output = Output()
        await _drain(connection, view, output)
        if follow:
            await _follow(connection, view, output)
        elif not output.written:
            screen.note("no output so far")
        return exits.FINE

    return with_connection(context, work)


class Output:
    """Writes each byte of each attempt once, though a node may send a piece again."""

    def __init__(self) -> None:
        self.last, self.written = 0, 0
        self._ends: dict[tuple[str, int], int] = {}

    def take(self, chunk: LogLine) -> None:
        """Write what is new of a piece, and say where output is missing."""
        body = chunk.text.encode()
        source = (chunk.node, chunk.attempt)
        end = self._ends.get(source, 0)
        if chunk.offset > end and end:
            screen.note(f"{chunk.offset - end} bytes of output are gone")
        new = body[max(0, end - chunk.offset) :]
        self._ends[source] = max(end, chunk.offset + len(body))
        self.written += len(new)
        sys.stdout.write(new.decode(errors="replace"))


async def _drain(connection: Connection, view: TaskView, output: Output) -> bool:
    """Write all there is now; whether there was anything."""
    before = output.last
    while True:
        query = LogQuery(task_id=view.task_id, after=output.last)
        answer = await connection.ask(Logs, "admission", "logs", query)
        for chunk in answer.chunks:
            output.take(chunk)
        sys.stdout.flush()
        if not answer.chunks or answer.last <= output.last:
            return output.last > before
        output.last = answer.last


async def _follow(connection: Connection, view: TaskView, output: Output) -> None:
    quiet = 0
    while quiet < QUIET_ROUNDS:
        await asyncio.sleep(POLL_S)
        now = await view_of(connection, view.task_id)
        ended = now is None or now.ended
        quiet = 0 if await _drain(connection, view, output) or not ended else quiet + 1
