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
from orca_runtime.errors import IntegrityError
from orca_runtime.log import EventLog, Stored
from orca_runtime.recorded import Recorded, Unreadable, recorded, unreadable

QUEUE_LIMIT = 2048
"""Inputs waiting per stream; the reader stops there, and the broker keeps the rest."""


@dataclass
class _Lane:
    """One input stream: what was read and is not decided yet.

    ``head`` is the first that waits, once read; ``judged`` says that what it needs exists.
    """

    waiting: deque[Stored] = field(default_factory=deque)
    room: asyncio.Event = field(default_factory=asyncio.Event)
    head: Recorded | Unreadable | None = None
    judged: bool = False

    def pop(self) -> None:
        """Let go of the first that waits."""
        self.waiting.popleft()
        self.head, self.judged = None, False


class Inbox:
    """Reads every input stream from a cursor on; raises in ``check`` what a reader met."""

    def __init__(self, decider: Decider[Any, Any], log: EventLog) -> None:
        self._decider, self._log = decider, log
        self._lanes: dict[str, _Lane] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.arrived = asyncio.Event()

    def start(self, cursor: Cursor) -> None:
        """Begin to read after what the cursor says is done."""
        for stream in self._decider.reads:
            self._lanes[stream] = _Lane()
            epoch, after = cursor.get(stream, (0, 0))
            self._tasks.append(asyncio.create_task(self._read(stream, epoch, after)))

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

    async def _read(self, stream: str, epoch: int, after: int) -> None:
        lane = self._lanes[stream]
        try:
            async for batch in self._log.read(stream, after):
                if epoch and batch[0].epoch != epoch:
                    found = "was made anew since it was last read"
                    raise IntegrityError(stream, batch[0].sequence, found)
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
        through = _through(done)
        # In rounds of equal shares: a flood in one stream must not starve the others.
        share = max(1, limit // max(1, len(self._lanes)))
        progress = True
        while progress and len(taken) < limit:
            progress = False
            for stream, lane in self._lanes.items():
                most = min(share, limit - len(taken))
                got = self._take_lane(stream, lane, through, ends, most)
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
            lane.pop()
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
        if lane.head is None:
            lane.head = read_input(lane.waiting[0])
        return lane.head

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

    async def rule_out_needs(self, done: Cursor) -> None:
        """Turn heads whose needs no stream holds into unreadable ones.

        Otherwise one forged fence would hold its stream up for ever. What is ruled out is this
        input, not the place: an event may come to stand there, and be named rightly.
        """
        through = _through(done)
        for lane in self._lanes.values():
            if lane.waiting and not lane.judged:
                needs = self._unmet(self._head(lane), through)
                if needs:
                    await self._judge(lane, needs)

    async def _judge(self, lane: _Lane, needs: Sequence[Position]) -> None:
        for need in needs:
            found = await self._log.state(need.stream)
            if found.epoch != need.epoch or found.last_sequence < need.sequence:
                error = MalformedError("data.fence", str(need), "name a position that exists")
                lane.head = unreadable(lane.waiting[0], error)
                self.arrived.set()
        lane.judged = True


def _through(done: Cursor) -> dict[str, int]:
    return {stream: place[1] for stream, place in done.items()}


def read_input(stored: Stored) -> Recorded | Unreadable:
    """Read a message as an input: an event, or what explains why it is none."""
    try:
        return recorded(stored)
    except MalformedError as error:
        return unreadable(stored, error)
