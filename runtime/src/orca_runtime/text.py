"""Text for people: aligned tables, numbers, times. Plain, whatever the window's width."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

GAP = "  "


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], right: str = "") -> str:
    """Write rows under their columns; ``right`` has an ``r`` for each column of numbers."""
    widths = [max(len(row[at]) for row in (columns, *rows)) for at in range(len(columns))]
    return "\n".join(_row(row, widths, right) for row in (columns, *rows))


def _row(row: Sequence[str], widths: Sequence[int], right: str) -> str:
    sides = right.ljust(len(widths))
    cells = (
        cell.rjust(width) if side == "r" else cell.ljust(width)
        for cell, width, side in zip(row, widths, sides, strict=True)
    )
    return GAP.join(cells).rstrip()


def fields(pairs: Sequence[tuple[str, str]]) -> str:
    """Write names and values, aligned."""
    width = max((len(name) for name, _ in pairs), default=0)
    return "\n".join(f"{name.ljust(width)}{GAP}{value}".rstrip() for name, value in pairs)


def clock(at_ms: int) -> str:
    """A time (Unix ms) in UTC, to the millisecond."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3]


def signed(change: int) -> str:
    """A change of an amount; nothing where there is none."""
    return f"{change:+,}" if change else ""
