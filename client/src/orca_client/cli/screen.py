"""What is written where: tables and lines on stdout, problems on stderr.

A terminal gets colour and folded columns; a pipe gets the same words in plain aligned columns,
whatever the width of anybody's window.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from rich.console import Console
from rich.table import Table
from rich.text import Text

GAP = "  "
STATE_STYLES = {
    "succeeded": "green", "running": "cyan", "queued": "yellow", "deferred": "yellow",
    "stopping": "magenta", "starting": "cyan", "admitted": "cyan", "submitted": "dim",
    "ready": "green", "ok": "green", "warn": "yellow", "fail": "bold red", "lost": "bold red",
}  # fmt: skip
BAD = "red"
WHY = "WHY"
MIN_WHY_CHARS = 20


def console() -> Console:
    """The console of stdout as it is now."""
    return Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def is_terminal() -> bool:
    """Whether a person looks at stdout."""
    return sys.stdout.isatty()


def line(text: str = "") -> None:
    """Write one plain line."""
    sys.stdout.write(f"{text}\n")


def note(text: str) -> None:
    """Say something beside the output."""
    sys.stderr.write(f"orca: {text}\n")
    sys.stderr.flush()


def as_json(value: Any) -> None:
    """Write one JSON document."""
    plain = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    line(json.dumps(plain, indent=2, ensure_ascii=False, default=str))


def styled(word: str) -> Text:
    """A state in its colour: what is not known here is an end, and not the good one."""
    return Text(word, STATE_STYLES.get(word, BAD))


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    state_column: str | None = None,
    whole: Sequence[str] = (),
) -> None:
    """Write rows under their columns; ``state_column`` is coloured by its words.

    A narrow terminal never folds the columns named in ``whole``; where the rest does not fit
    beside them, a last column WHY becomes a table of its own, by the first column.
    """
    if is_terminal():
        _on_terminal(columns, rows, state_column, whole)
        return
    for row in (columns, *rows):
        widths = (max(len(one[i]) for one in (columns, *rows)) for i in range(len(columns)))
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        line(GAP.join(cells).rstrip())


def _on_terminal(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    state_column: str | None,
    whole: Sequence[str],
) -> None:
    out = console()
    widths = [max(len(one[i]) for one in (columns, *rows)) for i in range(len(columns))]
    narrow = sum(widths[:-1]) + len(GAP) * len(widths) + MIN_WHY_CHARS > out.width
    if columns[-1] != WHY or not narrow:
        out.print(_rich(columns, rows, state_column, whole))
        return
    head, told = [row[:-1] for row in rows], [(row[0], row[-1]) for row in rows if row[-1]]
    out.print(_rich(columns[:-1], head, state_column, whole))
    if told:
        out.print()
        out.print(_rich((columns[0], WHY), told, None, columns[:1]))


def _rich(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    state_column: str | None,
    whole: Sequence[str],
) -> Table:
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        made.add_column(column, overflow="fold", no_wrap=column in whole)
    at = columns.index(state_column) if state_column else -1
    for row in rows:
        made.add_row(*(styled(c) if i == at else Text(c) for i, c in enumerate(row)))
    return made


def fields(pairs: Sequence[tuple[str, str]]) -> None:
    """Write names and values, aligned."""
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        line(f"{name.ljust(width)}{GAP}{value}".rstrip())
