"""The log read again, by a process that serves nobody: up to a moment, in bounded memory."""

from __future__ import annotations

import resource
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

from orca_schemas.errors import MalformedError

from orca_runtime.decider import Decider
from orca_runtime.fold import Folded, fold_one
from orca_runtime.log import EventLog, Stored
from orca_runtime.recorded import Recorded

S = TypeVar("S")

SECOND_MS = 1000


@dataclass(frozen=True, slots=True)
class Moment:
    """Up to where to read: a sequence of the own stream, or a time (Unix ms), or the end."""

    sequence: int | None = None
    time_ms: int | None = None

    @classmethod
    def parse(cls, text: str) -> Moment:
        """Read ``4711`` or ``2026-11-30T12:00`` (ISO 8601, UTC where no zone is named).

        Raises MalformedError.
        """
        if text.isdecimal():
            return cls(sequence=int(text))
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            remedy = "write a sequence such as 4711 or a time such as 2026-11-30T12:00"
            raise MalformedError("moment", text, remedy) from None
        zoned = found if found.tzinfo else found.replace(tzinfo=UTC)
        return cls(time_ms=int(zoned.timestamp() * SECOND_MS))

    def is_after(self, event: Recorded) -> bool:
        """Whether the event still belongs to what is asked for."""
        return self.time_ms is None or event.time_ms <= self.time_ms


END = Moment()


async def messages(
    log: EventLog, stream: str, after: int, end: int
) -> AsyncGenerator[Stored, None]:
    """The messages of a stream after one sequence through another, in order."""
    if after >= end:
        return
    reading = cast("AsyncGenerator[Sequence[Stored], None]", log.read(stream, after))
    async with aclosing(reading):
        async for batch in reading:
            for stored in batch:
                yield stored
                if stored.sequence >= end:
                    return


async def end_of(log: EventLog, stream: str, moment: Moment) -> int:
    """The last sequence to read; raises MalformedError for one that the stream has not reached."""
    last = (await log.state(stream)).last_sequence
    if moment.sequence is None:
        return last
    if moment.sequence > last:
        raise MalformedError("moment", str(moment.sequence), f"{stream} ends at {last}")
    return moment.sequence


async def folds(
    decider: Decider[S, Any], log: EventLog, start: Folded[S], moment: Moment
) -> AsyncGenerator[tuple[Folded[S], Recorded, Stored], None]:
    """Fold the own stream from ``start`` to the moment: each state with the event that led to it.

    Raises IntegrityError, UnknownEventError.
    """
    folded, end = start, await end_of(log, decider.stream, moment)
    async with aclosing(messages(log, decider.stream, folded.sequence, end)) as reading:
        async for stored in reading:
            after, event = fold_one(decider, folded, stored)
            if not moment.is_after(event):
                return
            folded = after
            yield folded, event, stored


def peak_memory_mib() -> float:
    """The most memory this process ever had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)
