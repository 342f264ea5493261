"""Rebuilding ClickHouse's tables from the log: the services that own them do it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from orca_schemas.asks import Rebuild, RebuildQuery

from orca_client.connection import Connection
from orca_client.errors import NoAnswerError, RefusedError

OWNERS = ("metering", "billing")
"""The services that project into ClickHouse."""
POLL_S = 0.2
PATIENCE_S = 60.0
"""How long a service may be silent (a restart, a take-over) before the rebuild gives up."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a service is, in events of all its projections. ``begun`` counts beginnings."""

    service: str
    at: int
    end: int
    begun: int
    done: bool


async def rebuild(connection: Connection, service: str) -> AsyncIterator[Progress]:
    """Have one service rebuild its tables; yields until it is done.

    A service that is restarted in the middle is asked again: its tables were left whole. Raises
    NoAnswerError after PATIENCE_S of silence, RefusedError where it failed.
    """
    begun, current = 0, ""
    heard_s = time.monotonic()
    while True:
        try:
            now = await connection.ask(
                Rebuild, service, "rebuild", RebuildQuery(start=current == "")
            )
        except NoAnswerError:
            if time.monotonic() - heard_s > PATIENCE_S:
                raise
            await asyncio.sleep(POLL_S)
            continue
        heard_s = time.monotonic()
        if now.id and current == "":
            current, begun = now.id, begun + 1
        if now.id != current:  # another process: what the last one began is gone
            current = ""
            continue
        if now.state == "failed":
            raise RefusedError(f"{service}: the rebuild failed: {now.reason}; nothing was changed")
        at, end = sum(part.at for part in now.parts), sum(part.end for part in now.parts)
        yield Progress(service, at, end, begun, now.state == "done")
        if now.state == "done":
            return
        await asyncio.sleep(POLL_S)
