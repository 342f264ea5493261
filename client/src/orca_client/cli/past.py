"""``orca replay`` and ``orca explain``: what the log says, read again by a fresh process.

Services are run, never imported: the command becomes ``python -m orca_<service>``.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path

import typer

from orca_client.cli import exits, screen
from orca_client.cli.context import settings_of, with_connection
from orca_client.connection import Connection
from orca_client.settings import ClientSettings
from orca_client.view import find

SERVICES = ("admission", "placement", "metering", "billing")
EXPLAINED_BY = {"quota": "admission", "task": "admission", "money": "billing"}
PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
FULL_ID_CHARS = 36
SERVICE_USER = "service"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    replays = typer.Typer(
        no_args_is_help=True,
        help="Rebuild a service's state from the log, and compare: orca replay billing --verify.",
    )
    for service in SERVICES:
        text = f"Rebuild the state of {service} (see orca replay {service} --help)."
        replays.command(service, help=text, context_settings=dict(PASS_ON))(_replaying(service))
    app.add_typer(replays, name="replay")
    explains = typer.Typer(
        no_args_is_help=True, help="Tell which events made it so, who caused them, and why."
    )
    for noun, text in (
        ("quota", "Why a balance is what it is: orca explain quota team-alpha --at 2026-11-30."),
        ("task", "Why a task is where it is: who did what, and why."),
        ("money", "Why an amount is what it is: orca explain money team-alpha --period 2026-11."),
    ):
        explains.command(noun, help=text, context_settings=dict(PASS_ON))(_explaining(noun))
    app.add_typer(explains, name="explain")


def _replaying(service: str) -> Callable[[typer.Context], int]:
    def command(context: typer.Context) -> int:
        return become(settings_of(context), service, ["replay", *context.args])

    return command


def _explaining(noun: str) -> Callable[[typer.Context], int]:
    def command(context: typer.Context) -> int:
        given = list(context.args)
        if noun == "task" and given and _is_beginning(given[0]):
            given[0] = _whole_id(context, given[0])
        return become(settings_of(context), EXPLAINED_BY[noun], ["explain", noun, *given])

    return command


def _is_beginning(task: str) -> bool:
    return not task.startswith("-") and len(task) < FULL_ID_CHARS


def _whole_id(context: typer.Context, beginning: str) -> str:
    found: list[str] = []

    async def work(connection: Connection) -> int:
        found.append(str((await find(connection, beginning)).task_id))
        return exits.FINE

    with_connection(context, work)
    return found[0]


def become(settings: ClientSettings, service: str, arguments: list[str]) -> int:
    """Become the service's program; returns only where that is not installed."""
    package = f"orca_{service}"
    if importlib.util.find_spec(package) is not None:
        sys.stdout.flush()
        command = [sys.executable, "-m", package, *arguments]
        env = os.environ | environment(settings, service)
        os.execve(sys.executable, command, env)  # noqa: S606
    screen.note(f"{service} is not installed here; install it: pip install orca-{service}")
    return exits.UNAVAILABLE


def environment(settings: ClientSettings, service: str) -> dict[str, str]:
    """What the program needs to know: where the log is, and where the service keeps snapshots."""
    user, password = _identity(settings)
    return {
        "ORCA_NATS_URL": settings.nats_url,
        "ORCA_DATA_DIR": str(data_dir(settings.data_dir, service)),
    } | ({"ORCA_NATS_USER": user, "ORCA_NATS_PASSWORD": password} if user and password else {})


def _identity(settings: ClientSettings) -> tuple[str | None, str | None]:
    """Who reads the log: the services' own user where this machine may know its password.

    An embedded stack keeps it for its owner's eyes; users and operators may not read streams.
    """
    with contextlib.suppress(OSError):
        path = settings.data_dir.expanduser() / "access" / SERVICE_USER
        return SERVICE_USER, path.read_text().strip()
    password = settings.nats_password
    return settings.nats_user, password.get_secret_value() if password else None


def data_dir(home: Path, service: str) -> Path:
    """A service's own directory: in an embedded stack below its home, else what is given."""
    embedded = home.expanduser() / "services" / service
    return embedded if embedded.is_dir() else home.expanduser()
