"""``orca sql``: ask ClickHouse."""

from __future__ import annotations

import csv
import sys
from datetime import datetime
from decimal import Decimal
from typing import Any

import typer

from orca_client import sql
from orca_client.cli import exits, screen
from orca_client.cli.context import settings_of
from orca_client.cli.get import JSON


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("sql", help="Run a statement in ClickHouse and print its rows.")(_sql)


def _sql(
    context: typer.Context,
    statement: str = typer.Argument(..., help="Such as: SELECT * FROM cost_daily"),
    json: bool = JSON,
    as_csv: bool = typer.Option(False, "--csv", help="CSV with a header"),
) -> int:
    if json and as_csv:
        raise typer.BadParameter("give --json or --csv, not both")
    answer = sql.query(settings_of(context).clickhouse_url, statement)
    if json:
        rows = (dict(zip(answer.columns, map(_plain, row), strict=True)) for row in answer.rows)
        screen.as_json(list(rows))
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(answer.columns)
        writer.writerows([_plain(value) for value in row] for row in answer.rows)
    elif answer.columns:
        screen.table(answer.columns, [[_cell(value) for value in row] for row in answer.rows])
        if screen.is_terminal():
            count = len(answer.rows)
            screen.note(f"{count} {'row' if count == 1 else 'rows'}")
    return exits.FINE


def _plain(value: Any) -> Any:
    """A value as JSON and CSV carry it: numbers stay numbers, decimals keep every digit as text."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        return f"{value:f}"  # never 0E-12
    return value if isinstance(value, (int, float, bool, list, dict, type(None))) else str(value)


def _cell(value: Any) -> str:
    return "NULL" if value is None else str(_plain(value))
