"""The log's port: what every store of streams must do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from orca_schemas.positions import Position

MAX_APPEND_MESSAGES = 1000
"""JetStream's bound for one atomic batch (ADR-50)."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One message as it stands in a stream. ``time_ns`` is the broker's time, Unix nanoseconds."""

    stream: str
    epoch: int
    sequence: int
    time_ns: int
    subject: str
    body: bytes

    @property
    def position(self) -> Position:
        """Where it stands."""
        return Position(self.stream, self.epoch, self.sequence)

    @property
    def time_ms(self) -> int:
        """The broker's time in Unix milliseconds."""
        return self.time_ns // 1_000_000


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message to append. ``id`` is the event's id, the same on every try."""

    subject: str
    body: bytes
    id: str


@dataclass(frozen=True, slots=True)
class StreamState:
    """What the broker says of a stream. An empty stream has ``last_sequence`` 0."""

    stream: str
    epoch: int
    first_sequence: int
    last_sequence: int
    messages: int


class EventLog(Protocol):
    """Streams of events, appended under an expectation and read without a gap."""

    async def state(self, stream: str) -> StreamState:
        """Ask the broker. Raises LogUnavailableError."""
        ...

    async def append(self, stream: str, expected_last: int, messages: Sequence[Outgoing]) -> int:
        """Append all or nothing if the stream's last sequence is ``expected_last``.

        Returns the new last sequence. The outcome is always known: a lost acknowledgement is
        resolved by reading what stands at the expected place. Raises ConflictError,
        StreamFullError; LogUnavailableError only where nothing was stored or the caller must
        re-read before it goes on.
        """
        ...

    async def publish(self, message: Outgoing) -> Position:
        """Append one message without expectation (many writers share the stream).

        Raises StreamFullError, LogUnavailableError (then it may or may not be stored).
        """
        ...

    def read(self, stream: str, after: int) -> AsyncIterator[Sequence[Stored]]:
        """Yield the messages after sequence ``after`` in order and without a gap, for ever.

        Each item is a batch of one or more. Raises IntegrityError on a hole, a roll-back or
        another epoch. Survives the broker's restarts.
        """
        ...

    async def get(self, stream: str, sequence: int) -> Stored | None:
        """Read one message; None where there is none."""
        ...

    async def close(self) -> None:
        """Let go of the connection."""
        ...
