"""The log that delays, loses answers, is full and goes away; and the view that one process has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from random import Random

from orca_runtime.errors import LogUnavailableError, StreamFullError
from orca_runtime.log import Outgoing, Stored, StreamState
from orca_runtime.memory_log import MemoryLog
from orca_schemas.positions import Position
from orca_schemas.subjects import Stream

from tests.simulation.faults import Faults

SHORT_S = 0.005
LONG_S = 3.0
AWAY_S = 0.5
"""How long a caller waits before it hears that the broker is away."""


class SimLog(MemoryLog):
    """The broker's side: what is stored, told to ``on_stored`` at once and in order."""

    def __init__(self, now_ns: Callable[[], int], rng: Random, faults: Faults) -> None:
        super().__init__(now_ns)
        self.rng, self.faults = rng, faults
        self.on_stored: list[Callable[[Stored], None]] = []
        self.full: set[str] = set()
        self.away = False

    async def append(self, stream: str, expected_last: int, messages: Sequence[Outgoing]) -> int:
        """Store all or nothing, and tell."""
        self._room(stream)
        last = await super().append(stream, expected_last, messages)
        self._tell(stream, last - len(messages))
        return last

    async def publish(self, message: Outgoing) -> Position:
        """Store one message; once the duplicate window is over, a repeat is stored again."""
        stream = stream_of(message)
        self._room(stream)
        if self.rng.random() < self.faults.window_over:
            self._streams[stream].ids.pop(message.id, None)
        before = self._streams[stream].last
        position = await super().publish(message)
        self._tell(stream, before)
        return position

    def _room(self, stream: str) -> None:
        if stream in self.full:
            raise StreamFullError(stream, "maximum bytes exceeded")

    def _tell(self, stream: str, after: int) -> None:
        for stored in self._streams[stream].messages[after:]:
            assert stored is not None
            for listener in self.on_stored:
                listener(stored)

    def last(self, stream: str) -> int:
        """The last sequence of a stream."""
        return self._streams[stream].last

    def epoch(self, stream: str) -> int:
        """The epoch of a stream."""
        return self._streams[stream].epoch

    def all(self, stream: str) -> list[Stored]:
        """Every message of a stream."""
        return [one for one in self._streams[stream].messages if one is not None]


def stream_of(message: Outgoing) -> str:
    """The stream that captures a subject, by its role alone, as the broker's filters do."""
    role = message.subject.split(".")[4]
    return Stream.USAGE if role == "probe" else role.upper()


class View:
    """EventLog as one process sees it: slow, cut off at times, and unsure of what it did."""

    def __init__(self, log: SimLog, rng: Random) -> None:
        self.log, self.rng = log, rng
        self._running = asyncio.Event()
        self._running.set()

    @property
    def connected(self) -> bool:
        """Whether this process would say that it is connected."""
        return not self.log.away and self._running.is_set()

    @property
    def paused(self) -> bool:
        """Whether the process stands still at its next call."""
        return not self._running.is_set()

    def pause(self) -> None:
        """Let every call hang, as in a stopped process."""
        self._running.clear()

    def go_on(self) -> None:
        """Let it run again, with whatever it believed."""
        self._running.set()

    async def _pass(self) -> None:
        faults = self.log.faults
        if self.rng.random() < faults.delay:
            await asyncio.sleep(self.rng.random() * SHORT_S)
        if faults.on and self.rng.random() < faults.long_delay:
            await asyncio.sleep(self.rng.random() * LONG_S)
        if not self._running.is_set():
            await self._running.wait()

    async def _ask(self) -> None:
        await self._pass()
        if self.log.away:
            await asyncio.sleep(AWAY_S)
            raise LogUnavailableError("the broker is away")

    def _chance(self, probability: float) -> bool:
        return self.log.faults.on and self.rng.random() < probability

    async def state(self, stream: str) -> StreamState:
        """See EventLog.state; the answer may be old when it comes."""
        await self._ask()
        found = await self.log.state(stream)
        await self._pass()
        return found

    async def append(self, stream: str, expected_last: int, messages: Sequence[Outgoing]) -> int:
        """See EventLog.append; the outcome may stay unknown."""
        await self._ask()
        if self._chance(self.log.faults.append_refused):
            raise LogUnavailableError("refused, nothing stored")
        last = await self.log.append(stream, expected_last, messages)
        await self._pass()
        if self._chance(self.log.faults.append_lost):
            raise LogUnavailableError("stored, answer lost")
        return last

    async def publish(self, message: Outgoing) -> Position:
        """See EventLog.publish; the outcome may stay unknown."""
        await self._ask()
        position = await self.log.publish(message)
        await self._pass()
        if self._chance(self.log.faults.publish_lost):
            raise LogUnavailableError("stored, answer lost")
        return position

    async def read(self, stream: str, after: int) -> AsyncIterator[Sequence[Stored]]:
        """See EventLog.read; batches are cut anywhere and each comes when it comes."""
        async for batch in self.log.read(stream, after):
            start = 0
            while start < len(batch):
                end = start + self.rng.randint(1, 64)
                await self._pass()
                while self.log.away:  # noqa: ASYNC110 - nobody is told of a broker
                    await asyncio.sleep(AWAY_S)
                yield batch[start:end]
                start = end

    async def get(self, stream: str, sequence: int) -> Stored | None:
        """See EventLog.get."""
        await self._ask()
        return await self.log.get(stream, sequence)

    async def close(self) -> None:
        """Nothing to let go of."""
