"""``orca doctor``: what is well, what is not, what to do."""

from __future__ import annotations

import asyncio

import typer
from rich.table import Table
from rich.text import Text

from orca_client.cli import exits, screen
from orca_client.cli.context import settings_of
from orca_client.cli.get import JSON
from orca_client.doctor import Finding, Level, examine
from orca_client.settings import ClientSettings

LEVEL_CHARS = 6
WHAT_CHARS = 36


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("doctor", help="Look at everything; exit code 1 if something is broken.")(_doctor)


def _doctor(context: typer.Context, json: bool = JSON) -> int:
    findings = asyncio.run(_look(settings_of(context), quiet=json))
    if json:
        screen.as_json([finding.as_json() for finding in findings])
    failed = any(finding.level is Level.FAIL for finding in findings)
    return exits.FAILED if failed else exits.FINE


async def _look(settings: ClientSettings, quiet: bool) -> list[Finding]:
    findings = []
    async for finding in examine(settings):
        findings.append(finding)
        if not quiet:
            _say(finding)
    return findings


def _say(finding: Finding) -> None:
    level, what, seen = finding.level.value, finding.what, finding.seen
    if finding.remedy and finding.level is not Level.OK and finding.remedy not in seen:
        seen += f" -> {finding.remedy}"
    if not screen.is_terminal():
        screen.line(f"{level.ljust(LEVEL_CHARS)}{what.ljust(WHAT_CHARS)}{seen}")
        return
    grid = Table.grid()
    grid.add_column(width=LEVEL_CHARS)
    grid.add_column(min_width=WHAT_CHARS, no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(screen.styled(level), Text(what), Text(seen))
    screen.console().print(grid)
