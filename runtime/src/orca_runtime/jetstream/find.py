"""Finding messages by subject: one question a message, so no consumer is left behind."""

from __future__ import annotations

from orca_runtime.jetstream.api import find_message
from orca_runtime.jetstream.connect import Link
from orca_runtime.log import Stored


async def find(
    link: Link, stream: str, epoch: int, subject_filter: str, after: int, limit: int
) -> list[Stored]:
    """Up to ``limit`` messages after sequence ``after`` whose subject fits, in order.

    Raises LogUnavailableError, RefusedError.
    """
    found: list[Stored] = []
    while len(found) < limit:
        message = await find_message(link, stream, epoch, after + 1, subject_filter)
        if message is None:
            break
        found.append(message.stored)
        after = message.stored.sequence
    return found
