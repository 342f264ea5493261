"""The log in memory: deterministic, in one process, with a clock that is handed in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from orca_schemas.positions import Position

from orca_runtime.errors import (
    ConflictError,
    DecisionTooLargeError,
    IntegrityError,
    LogUnavailableError,
    StreamFullError,
)
from orca_runtime.log import MAX_APPEND_MESSAGES, Outgoing, Stored, StreamState
from orca_runtime.streams import STREAMS, takes_ids

BATCH_MESSAGES = 512


@dataclass(slots=True)
class MemoryStream:
    """One stream. ``limit`` is its most messages, None for no limit."""

    name: str
    subject_filter: str
    epoch: int
    limit: int | None = None
    messages: list[Stored | None] = field(default_factory=list)
    """By sequence, from 1; None where a message was taken out."""
    ids: dict[str, int] = field(default_factory=dict)
    grown: asyncio.Event = field(default_factory=asyncio.Event)
    """Replaced on every change, so that each reader wakes once."""

    @property
    def last(self) -> int:
        """The last sequence; 0 when empty."""
        return len(self.messages)

    def store(self, messages: Sequence[Outgoing], time_ns: int) -> None:
        """Add messages that were checked, and wake the readers."""
        if self.limit is not None and self.last + len(messages) > self.limit:
            raise StreamFullError(self.name, "maximum messages exceeded")
        for message in messages:
            place = (self.name, self.epoch, self.last + 1, time_ns)
            self.messages.append(Stored(*place, message.subject, message.body))
            self.ids[message.id] = self.last
        self.wake()

    def wake(self) -> None:
        """Let the readers look again."""
        grown, self.grown = self.grown, asyncio.Event()
        grown.set()


class MemoryLog:
    """EventLog in memory, with every stream of Orca declared.

    ``now_ns`` gives the broker's time in Unix nanoseconds; nothing else here knows time. A
    subclass may delay, fail or hide outcomes by overriding the methods of EventLog.
    """

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._streams: dict[str, MemoryStream] = {}
        for spec in STREAMS:
            self.declare(spec.name, spec.subjects[0])

    def declare(self, stream: str, subject_filter: str, limit: int | None = None) -> None:
        """Make a stream, or make it anew: empty and of another epoch."""
        old = self._streams.get(stream)
        epoch = max(self._now_ns(), old.epoch + 1 if old else 0)
        self._streams[stream] = MemoryStream(stream, subject_filter, epoch, limit)
        if old is not None:
            old.wake()

    def erase(self, stream: str, sequence: int) -> None:
        """Take one message out, as corruption does: readers meet a hole."""
        self._stream(stream).messages[sequence - 1] = None

    def roll_back(self, stream: str, last: int) -> None:
        """Forget what was stored after ``last``, as a torn file does."""
        found = self._stream(stream)
        del found.messages[last:]
        found.ids = {id_: at for id_, at in found.ids.items() if at <= last}
        found.wake()

    async def state(self, stream: str) -> StreamState:
        """See EventLog.state."""
        found = self._stream(stream)
        held = sum(1 for one in found.messages if one is not None)
        return StreamState(stream, found.epoch, min(1, found.last), found.last, held)

    async def append(self, stream: str, expected_last: int, messages: Sequence[Outgoing]) -> int:
        """See EventLog.append."""
        if not messages:
            raise ValueError("append at least one message")
        if len(messages) > MAX_APPEND_MESSAGES:
            raise DecisionTooLargeError(f"{len(messages)} > {MAX_APPEND_MESSAGES} messages")
        found = self._stream(stream)
        if found.last < expected_last:
            text = f"the stream ends here, though {expected_last} was read"
            raise IntegrityError(stream, found.last, text)
        if found.last > expected_last:
            raise ConflictError(stream, expected_last, found.last)
        if any(message.id in found.ids for message in messages):
            text = "an event id of this append is stored elsewhere already"
            raise IntegrityError(stream, expected_last + 1, text)
        found.store(messages, self._now_ns())
        return found.last

    async def publish(self, message: Outgoing) -> Position:
        """See EventLog.publish. An id stored with the same bytes is not stored again."""
        found = self._of(message.subject)
        at = found.ids.get(message.id) if takes_ids(message.subject) else None
        if at is None or not _same(found.messages[at - 1], message):
            found.store([message], self._now_ns())
            at = found.last
        return Position(found.name, found.epoch, at)

    async def read(self, stream: str, after: int) -> AsyncIterator[Sequence[Stored]]:
        """See EventLog.read."""
        epoch = self._stream(stream).epoch
        while True:
            found = self._stream(stream)
            if found.epoch != epoch:
                raise IntegrityError(stream, after, f"another stream: epoch {found.epoch}")
            if found.last < after:
                raise IntegrityError(stream, after, f"the stream rolled back to {found.last}")
            if found.last == after:
                await found.grown.wait()
                continue
            batch = _whole(stream, after, found.messages[after : after + BATCH_MESSAGES])
            after += len(batch)
            yield batch

    async def get(self, stream: str, sequence: int) -> Stored | None:
        """See EventLog.get."""
        found = self._stream(stream)
        return found.messages[sequence - 1] if 1 <= sequence <= found.last else None

    async def close(self) -> None:
        """Nothing to let go of."""

    def _stream(self, stream: str) -> MemoryStream:
        try:
            return self._streams[stream]
        except KeyError:
            raise LogUnavailableError(f"there is no stream {stream}; declare it") from None

    def _of(self, subject: str) -> MemoryStream:
        for found in self._streams.values():
            if _matches(found.subject_filter, subject):
                return found
        raise LogUnavailableError(f"{subject}: no stream takes this")


def _whole(stream: str, after: int, slots: Sequence[Stored | None]) -> list[Stored]:
    batch = [one for one in slots if one is not None]
    if len(batch) != len(slots):
        hole = after + 1 + list(slots).index(None)
        raise IntegrityError(stream, hole, "a message is missing")
    return batch


def _same(stored: Stored | None, message: Outgoing) -> bool:
    return stored is not None and stored.subject == message.subject and stored.body == message.body


def _matches(subject_filter: str, subject: str) -> bool:
    """NATS's matching for filters with ``*`` (and a last ``>``)."""
    wanted, tokens = subject_filter.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted, tokens = wanted[:-1], tokens[: len(wanted) - 1]
    return len(wanted) == len(tokens) and all(
        a in ("*", b) for a, b in zip(wanted, tokens, strict=True)
    )
