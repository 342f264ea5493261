"""JetStreamLog: the log's port on NATS JetStream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence

from nats.aio.client import Client
from orca_schemas.positions import Position

from orca_runtime.errors import LogUnavailableError, StreamFullError
from orca_runtime.jetstream.api import find_message, stream_state
from orca_runtime.jetstream.append import Append, Patience, Verdict, read_verdict, same
from orca_runtime.jetstream.connect import (
    READ_BUFFER_BYTES,
    Access,
    Link,
    NotSentError,
    RefusedError,
    UnansweredError,
)
from orca_runtime.jetstream.find import find
from orca_runtime.jetstream.reader import Tail
from orca_runtime.jetstream.wire import FULL_CODES
from orca_runtime.log import Outgoing, Stored, StreamState
from orca_runtime.streams import EXPIRING, takes_ids

CONNECT_WAIT_S = 20.0
PUBLISH_TIMEOUT_S = 5.0
UNKNOWN_EPOCH = 0
"""In the position of a publish whose writer may not ask for the stream's state."""


class JetStreamLog:
    """EventLog on two connections: one writes and never sends late, one reads.

    A stream's epoch is fixed when it is first seen: a stream deleted and made anew is an
    IntegrityError for every reader, until a new JetStreamLog is made.
    """

    def __init__(
        self, writing: Link, reading: Link, expiring: Collection[str], patience: Patience
    ) -> None:
        self._writing, self._reading = writing, reading
        self._expiring = frozenset(expiring)
        self._patience = patience
        self._epochs: dict[str, int] = {}
        self._unseen: set[str] = set()
        """Streams that this user may write, not ask about: asked about once."""

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        name: str,
        user: str | None = None,
        password: str | None = None,
        creds: str | None = None,
        inbox_prefix: str = "_INBOX",
        expiring: Collection[str] = EXPIRING,
        patience: Patience = Patience(),  # noqa: B008
        wait_s: float = CONNECT_WAIT_S,
    ) -> JetStreamLog:
        """Connect within ``wait_s``. ``expiring``: streams that may begin after sequence 1.

        Raises LogUnavailableError, RefusedError for wrong credentials.
        """
        access = Access(url, name, user, password, creds, inbox_prefix)
        writing = await Link.open(access, pending_size=0, wait_s=wait_s)
        try:
            reading = await Link.open(access, pending_size=READ_BUFFER_BYTES, wait_s=wait_s)
        except BaseException:
            await writing.close()
            raise
        return cls(writing, reading, expiring, patience)

    @property
    def nc(self) -> Client:
        """The reading connection, for core publish, subscribe and request."""
        return self._reading.nc

    @property
    def connected(self) -> bool:
        """Whether both connections stand."""
        return self._writing.up.is_set() and self._reading.up.is_set()

    async def wait_connected(self) -> None:
        """Wait until both connections stand, for ever."""
        await self._writing.up.wait()
        await self._reading.up.wait()

    async def wait_closed(self) -> None:
        """Wait until a connection is closed for good (then the process must start anew)."""
        links = (self._writing, self._reading)
        waits = [asyncio.ensure_future(link.closed.wait()) for link in links]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()

    async def state(self, stream: str) -> StreamState:
        """See EventLog.state. Raises RefusedError where there is no such stream."""
        state = await stream_state(self._reading, stream)
        self._epochs.setdefault(stream, state.epoch)
        return state

    async def epoch(self, stream: str) -> int:
        """The stream's creation time, Unix ns, as first seen. Raises like state."""
        if stream not in self._epochs:
            await self.state(stream)
        return self._epochs[stream]

    async def append(self, stream: str, expected_last: int, messages: Sequence[Outgoing]) -> int:
        """See EventLog.append. A group is one atomic batch (ADR-50)."""
        append = Append(
            self._writing, self._reading, stream, expected_last, messages, self._patience
        )
        return await append.run()

    async def publish(self, message: Outgoing) -> Position:
        """See EventLog.publish.

        Where another message took this id, or that cannot be seen, the message is stored without
        id: readers of shared streams know repeats by what is in them.
        """
        with_id = takes_ids(message.subject)
        verdict = await self._publish(message, with_id=with_id)
        if verdict.duplicate and not await self._stands(verdict, message):
            verdict = await self._publish(message, with_id=False)
        return Position(verdict.stream, await self._known_epoch(verdict.stream), verdict.sequence)

    async def _publish(self, message: Outgoing, *, with_id: bool) -> Verdict:
        headers = {"Nats-Msg-Id": message.id} if with_id else None
        try:
            answer = await self._writing.request(
                message.subject, message.body, headers, timeout_s=PUBLISH_TIMEOUT_S
            )
            verdict = read_verdict(answer)
        except (NotSentError, UnansweredError) as error:
            raise LogUnavailableError(f"{message.subject}: {error}") from error
        if verdict.code in FULL_CODES:
            raise StreamFullError(verdict.stream, verdict.text)
        if verdict.passing:
            raise LogUnavailableError(f"{verdict.stream}: {verdict.text}")
        if verdict.code:
            raise RefusedError(f"{verdict.stream}: {verdict.text} ({verdict.code})")
        return verdict

    async def _stands(self, verdict: Verdict, message: Outgoing) -> bool:
        try:
            found = await find_message(self._reading, verdict.stream, 0, verdict.sequence)
        except RefusedError:
            return False
        return found is not None and same(found.stored, message)

    async def _known_epoch(self, stream: str) -> int:
        if stream in self._unseen:
            return UNKNOWN_EPOCH
        try:
            return await self.epoch(stream)
        except RefusedError:
            self._unseen.add(stream)
            return UNKNOWN_EPOCH

    async def read(self, stream: str, after: int) -> AsyncIterator[Sequence[Stored]]:
        """See EventLog.read. Raises RefusedError where reading is not allowed."""
        epoch = await self.epoch(stream)
        tail = Tail(self._reading, stream, epoch, after, stream in self._expiring)
        try:
            while True:
                yield await tail.next_batch()
        finally:
            await tail.close()

    async def get(self, stream: str, sequence: int) -> Stored | None:
        """See EventLog.get; asks the stream's leader."""
        epoch = await self.epoch(stream)
        found = await find_message(self._reading, stream, epoch, sequence)
        return found.stored if found else None

    async def find(self, stream: str, subject_filter: str, after: int, limit: int) -> list[Stored]:
        """Up to ``limit`` messages after ``after`` whose subject fits the filter, in order."""
        return await find(
            self._reading, stream, await self.epoch(stream), subject_filter, after, limit
        )

    async def close(self) -> None:
        """Close both connections."""
        await self._writing.close()
        await self._reading.close()
