"""``orca up|down|status``: the embedded stack, which is a package of its own."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable

import typer

from orca_client.cli import exits, screen

PACKAGE = "orca_embedded"
PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for name, text in (
        ("up", "Run the embedded stack: broker, ClickHouse, services, nodes (see orca up --help)."),
        ("down", "Stop the embedded stack; its state is kept."),
        ("status", "Show the processes of the embedded stack."),
    ):
        app.command(name, help=text, context_settings=dict(PASS_ON))(_passing_on(name))


def _passing_on(name: str) -> Callable[[typer.Context], int]:
    def command(context: typer.Context) -> int:
        return become([name, *context.args])

    return command


def become(arguments: list[str]) -> int:
    """Become ``python -m orca_embedded``; returns only where that is not installed."""
    if importlib.util.find_spec(PACKAGE) is not None:
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, "-m", PACKAGE, *arguments])  # noqa: S606
    screen.note("the embedded stack is not installed; install it: pip install orca-embedded")
    return exits.UNAVAILABLE
