"""From older versions of an event's data to the newest, on the raw dict, one version at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orca_schemas.errors import UnknownVersionError

Upcast = Callable[[dict[str, Any]], dict[str, Any]]

UPCASTS: dict[tuple[str, int], Upcast] = {}
"""``(event name, from version)`` to the function that gives the data of the next version."""


def upcast(event: str, version: int, newest: int, data: dict[str, Any]) -> dict[str, Any]:
    """Bring ``data`` from ``version`` to ``newest``; raises UnknownVersionError."""
    for step in range(version, newest):
        change = UPCASTS.get((event, step))
        if change is None:
            raise UnknownVersionError("type", f"orca.{event}.v{step}", f"send v{newest}")
        data = change(data)
    if version > newest:
        raise UnknownVersionError(
            "type", f"orca.{event}.v{version}", f"this release reads v{newest}"
        )
    return data
