"""The inputs of a decider: one bounded queue per stream, filled without a gap, taken in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orca_schemas.errors import MalformedError
from orca_schemas.positions import Cursor, Position

from orca_runtime.decider import Decider
from orca_runtime.log import EventLog, Stored
from orca_runtime.recorded import Recorded, Unreadable, recorded, unreadable

QUEUE_LIMIT = 2048
"""Inputs waiting per stream; the reader stops there, and the broker keeps the rest."""


@dataclass
class _Lane:
    """One input stream: what was read and is not decided yet."""

    waiting: deque[Stored] = field(default_factory=deque)
    room: asyncio.Event = field(default_factory=asyncio.Event)


class Inbox:
    """Reads every input stream from a cursor on; raises in ``check`` what a reader met."""

    def __init__(self, decider: Decider[Any, Any], log: EventLog) -> None:
        self._decider, self._log = decider, log
        self._lanes: dict[str, _Lane] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.arrived = asyncio.Event()
        self.impossible: set[Position] = set()
        """Positions that inputs named and that no stream holds: such an input is no event."""

    def start(self, cursor: Cursor) -> None:
        """Begin to read after what the cursor says is done."""
        for stream in self._decider.inputs:
            self._lanes[stream] = _Lane()
            after = cursor.get(stream, (0, 0))[1]
            self._tasks.append(asyncio.create_task(self._read(stream, after)))

    async def stop(self) -> None:
        """Stop reading and forget what is undecided."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks, self._lanes = [], {}

    def check(self) -> None:
        """Raise what stopped a reader, if anything did."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    async def _read(self, stream: str, after: int) -> None:
        lane = self._lanes[stream]
        try:
            async for batch in self._log.read(stream, after):
                lane.waiting.extend(batch)
                self.arrived.set()
                while len(lane.waiting) >= QUEUE_LIMIT:
                    lane.room.clear()
                    await lane.room.wait()
        finally:
            self.arrived.set()

    def __len__(self) -> int:
        """How many inputs wait."""
        return sum(len(lane.waiting) for lane in self._lanes.values())

    def waiting(self) -> Mapping[str, int]:
        """How many inputs wait, per stream."""
        return {stream: len(lane.waiting) for stream, lane in self._lanes.items()}

    def take(
        self, done: Cursor, ends: Mapping[str, int], limit: int
    ) -> list[Recorded | Unreadable]:
        """Take up to ``limit`` inputs whose needs are met, in each stream's order.

        ``done`` is what was decided through, ``ends`` where the streams end that must be read
        first; an input that waits for another stream holds back its own stream only.
        """
        taken: list[Recorded | Unreadable] = []
        through = {stream: place[1] for stream, place in done.items()}
        progress = True
        while progress and len(taken) < limit:
            progress = False
            for stream, lane in self._lanes.items():
                got = self._take_lane(stream, lane, through, ends, limit - len(taken))
                progress = progress or bool(got)
                taken.extend(got)
        return taken

    def _take_lane(
        self,
        stream: str,
        lane: _Lane,
        through: dict[str, int],
        ends: Mapping[str, int],
        limit: int,
    ) -> list[Recorded | Unreadable]:
        got: list[Recorded | Unreadable] = []
        while lane.waiting and len(got) < limit:
            if not self._read_first_met(stream, through, ends):
                break
            given = self._head(lane)
            if self._unmet(given, through):
                break
            lane.waiting.popleft()
            through[stream] = given.position.sequence
            got.append(given)
        if len(lane.waiting) < QUEUE_LIMIT:
            lane.room.set()
        return got

    def _read_first_met(
        self, stream: str, through: Mapping[str, int], ends: Mapping[str, int]
    ) -> bool:
        firsts = self._decider.read_first.get(stream, ())  # type: ignore[call-overload]
        return all(through.get(first, 0) >= ends.get(first, 0) for first in firsts)

    def _head(self, lane: _Lane) -> Recorded | Unreadable:
        stored = lane.waiting[0]
        given = read_input(stored)
        if isinstance(given, Recorded):
            for need in self._decider.needs(given):
                if need in self.impossible:
                    remedy = "name a position that exists"
                    return unreadable(stored, MalformedError("data.fence", str(need), remedy))
        return given

    def _unmet(
        self, given: Recorded | Unreadable, through: Mapping[str, int]
    ) -> Sequence[Position]:
        """The positions that an input names and that are not decided through yet."""
        if isinstance(given, Unreadable):
            return ()
        return [
            need
            for need in self._decider.needs(given)
            if need.stream in self._lanes and through.get(need.stream, 0) < need.sequence
        ]

    def read_first_streams(self) -> set[str]:
        """Streams whose ends must be known before what waits may be taken."""
        return {
            first
            for stream, lane in self._lanes.items()
            if lane.waiting
            for first in self._decider.read_first.get(stream, ())  # type: ignore[call-overload]
        }

    def blocked_needs(self, done: Cursor) -> list[Position]:
        """What the heads of the queues wait for."""
        through = {stream: place[1] for stream, place in done.items()}
        heads = (self._head(lane) for lane in self._lanes.values() if lane.waiting)
        return [need for head in heads for need in self._unmet(head, through)]


def read_input(stored: Stored) -> Recorded | Unreadable:
    """Read a message as an input: an event, or what explains why it is none."""
    try:
        return recorded(stored)
    except MalformedError as error:
        return unreadable(stored, error)
