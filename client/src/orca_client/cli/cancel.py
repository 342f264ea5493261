"""``orca cancel``: ask for a task's end and say what became of the wish."""

from __future__ import annotations

import typer
from orca_schemas.subjects import Kind, Role, Stream

from orca_client.cli import exits, screen, words
from orca_client.cli.context import with_connection
from orca_client.connection import Connection
from orca_client.listen import answers_about, reason_of
from orca_client.submit import cancel
from orca_client.view import find


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("cancel", help="End a task: its owner and the namespace's admins may.")(_cancel)


def _cancel(
    context: typer.Context,
    task: str = typer.Argument(..., help="The task's id, or how it begins"),
    reason: str = typer.Option("", help="Why; it stands in the task's events"),
) -> int:
    async def work(connection: Connection) -> int:
        view = await find(connection, task)
        id_ = str(view.task_id)
        async with answers_about(
            connection, view.namespace, Kind.TASK, id_, Role.ADMISSION
        ) as answers:
            sequence = await cancel(connection, view.namespace, view.task_id, reason)
            event, data = await answers.to(sequence, Stream.CLIENT)
        if event == "RequestRefused":
            screen.note(f"{words.label(view)}: {reason_of(data)}")
            return exits.REFUSED
        became = "cancelled before it began" if event == "TaskRejected" else "stopping"
        screen.line(f"{words.label(view)}: {became}")
        return exits.FINE

    return with_connection(context, work)
