"""``orca streams apply|check``: how the log is declared, and whether it is whole.

The runtime does it, which reads streams without a gap: the command becomes that program.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable

import typer

from orca_client.cli import exits, screen
from orca_client.cli.context import settings_of
from orca_client.settings import ClientSettings

PACKAGE = "orca_runtime"
PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True, help="The streams of the log: apply, check.")
    for name, text in (
        ("apply", "Create what is missing, change what may change: --store-bytes BYTES."),
        ("check", "Say whether all is as declared, whole, consistent; --deep reads everything."),
    ):
        group.command(name, help=text, context_settings=dict(PASS_ON))(_passing_on(name))
    app.add_typer(group, name="streams")


def _passing_on(name: str) -> Callable[[typer.Context], int]:
    def command(context: typer.Context) -> int:
        return _become(settings_of(context), [name, *context.args])

    return command


def _become(settings: ClientSettings, arguments: list[str]) -> int:
    """Become the runtime's program; returns only where that is not installed."""
    if importlib.util.find_spec(PACKAGE) is not None:
        sys.stdout.flush()
        command = [sys.executable, "-m", f"{PACKAGE}.streams_tool", *arguments]
        os.execve(sys.executable, command, os.environ | _environment(settings))  # noqa: S606
    screen.note("the runtime is not installed; install it: pip install orca-runtime")
    return exits.UNAVAILABLE


def _environment(settings: ClientSettings) -> dict[str, str]:
    found = {"ORCA_NATS_URL": settings.nats_url}
    if settings.nats_user is not None and settings.nats_password is not None:
        found["ORCA_NATS_USER"] = settings.nats_user
        found["ORCA_NATS_PASSWORD"] = settings.nats_password.get_secret_value()
    return found
