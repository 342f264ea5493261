"""Reading a stream in order and without a gap: a pull loop of our own.

nats-py's push and ordered consumers skip messages silently when a reader is slow. Here nothing
is sent unless asked for: at most ROOM_MESSAGES are asked for or buffered, so a slow reader costs
bounded memory and loses nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from orca_runtime.errors import IntegrityError, LogError, LogUnavailableError
from orca_runtime.jetstream.api import StreamMissingError, api, check, stream_state
from orca_runtime.jetstream.append import backoff_s
from orca_runtime.jetstream.connect import Link, NotSentError, RefusedError
from orca_runtime.jetstream.wire import (
    NS_PER_S,
    STATUS_CONFLICT,
    STATUS_HEARTBEAT,
    STATUS_NO_MESSAGES,
    STATUS_TIMEOUT,
    parse_ack_subject,
    parse_status,
)
from orca_runtime.log import Stored, StreamState

BATCH_MESSAGES = 512
PULL_MESSAGES = 2000
PULL_BYTES = 8 * 1024 * 1024
"""Bounds what large messages may cost: one request's bytes, and when to ask for no more."""
ROOM_MESSAGES = 2 * PULL_MESSAGES
PULL_EXPIRES_S = 5.0
HEARTBEAT_S = 1.0
SILENCE_S = 2 * PULL_EXPIRES_S
INACTIVE_S = 300


ENDED_CODES = frozenset((STATUS_NO_MESSAGES, STATUS_TIMEOUT, STATUS_CONFLICT))
"""The broker is done with one request."""
GONE_TEXTS = ("consumer", "leadership", "server")
"""Of these, the ones that end the consumer: deleted, moved, shutting down."""
_PENDING = re.compile(rb"Nats-Pending-Messages: (\d+)")


@dataclass(slots=True)
class Tail:
    """One reader of one stream: its consumer, what it asked for, and what arrived."""

    link: Link
    stream: str
    epoch: int
    after: int
    expiring: bool
    received: int = 0
    anchor: Stored | None = None
    """The newest message received: read again after a restart, to see that it still stands."""
    buffer: list[Stored] = field(default_factory=list)
    fault: LogError | None = None
    held_bytes: int = 0
    """Bytes in the buffer."""
    _asked: int = 0
    """Messages asked for and not yet sent."""
    _restarts: int = 0
    """Since something was last heard."""
    _consumer: str = ""
    _subscription: Any = None
    _stale: bool = True
    _heard_s: float = 0.0
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.received = self.after
        self.link.on_reconnect.add(self._on_reconnect)

    async def next_batch(self) -> Sequence[Stored]:
        """Wait for messages; raises IntegrityError, RefusedError, LogUnavailableError (closed)."""
        self._heard_s = now_s()
        while not self.buffer:
            if self.fault is not None:
                raise self.fault
            if self._stale:
                await self._restart()
            await self._ask()
            await self._wait()
        batch = self.buffer[:BATCH_MESSAGES]
        del self.buffer[:BATCH_MESSAGES]
        self.held_bytes -= sum(len(stored.body) for stored in batch)
        if not self._stale:
            await self._ask()
        return batch

    async def _wait(self) -> None:
        """Sleep until something arrives; too long a silence makes the consumer stale."""
        self._wake.clear()
        if self.buffer or self.fault is not None or self._stale:
            return
        try:
            async with asyncio.timeout_at(self._heard_s + SILENCE_S):
                await self._wake.wait()
        except TimeoutError:
            self._stale = now_s() >= self._heard_s + SILENCE_S

    async def _restart(self) -> None:
        """Check the stream and make a new consumer, as often as it takes."""
        while self._stale:
            if self.link.closed.is_set():
                raise LogUnavailableError(f"{self.stream}: the connection is closed")
            if self._restarts:
                await asyncio.sleep(backoff_s(self._restarts))
            self._restarts += 1
            with contextlib.suppress(LogUnavailableError):
                await self._begin()

    async def _begin(self) -> None:
        reconnects = self.link.reconnects
        await self._drop()
        try:
            self._check(await stream_state(self.link, self.stream))
        except StreamMissingError as missing:
            raise self._broken("the stream is gone") from missing
        self._consumer, self._asked = uuid4().hex, 0
        self._subscription = await self.link.nc.subscribe_raw(f"{self._inbox}.*", self._on_message)
        for subject in self._permitted:
            self.link.on_denied[subject] = self._on_denied
        body = {"stream_name": self.stream, "config": self._config(), "action": "create"}
        created = await api(self.link, f"CONSUMER.CREATE.{self.stream}.{self._consumer}", body)
        check(self.stream, created)
        self._heard_s = now_s()
        self._stale = reconnects != self.link.reconnects

    @property
    def _inbox(self) -> str:
        return f"{self.link.inbox_prefix}.{self._consumer}"

    @property
    def _next_subject(self) -> str:
        return f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{self._consumer}"

    @property
    def _permitted(self) -> tuple[str, str]:
        """What the broker must permit, as its denial names it."""
        return self._next_subject.lower(), f"{self._inbox}.*".lower()

    def _check(self, state: StreamState) -> None:
        """Law 9: the stream is the one it was, ends no earlier, and has no hole."""
        if state.epoch != self.epoch:
            raise self._broken(f"another stream of this name: epoch {state.epoch}")
        if state.last_sequence < self.received:
            raise self._broken(f"the stream rolled back to {state.last_sequence}")
        if self.expiring and self.received == 0:
            return
        if state.first_sequence > self.received + 1:
            raise self._broken(f"the stream begins at {state.first_sequence}")
        held = state.last_sequence - state.first_sequence + 1 if state.messages else 0
        if not self.expiring and state.messages != held:
            raise self._broken(f"{held - state.messages} messages are missing")

    def _broken(self, found: str) -> IntegrityError:
        return IntegrityError(self.stream, self.received, found)

    def _config(self) -> dict[str, Any]:
        start = self.anchor.sequence if self.anchor else self.received + 1
        return {
            "name": self._consumer,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": start,
            "ack_policy": "none",
            "replay_policy": "instant",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": INACTIVE_S * NS_PER_S,
        }

    async def _ask(self) -> None:
        """Ask for more wherever there is room for a whole request's messages."""
        try:
            while self._has_room() and not self._stale:
                await self.link.send(self._next_subject, self._request(), reply=f"{self._inbox}.0")
                self._asked += PULL_MESSAGES
        except NotSentError:
            self._stale = True

    def _has_room(self) -> bool:
        room = ROOM_MESSAGES - len(self.buffer) - self._asked
        return room >= PULL_MESSAGES and self.held_bytes < PULL_BYTES

    def _request(self) -> bytes:
        # A request smaller than the next message would be refused for ever.
        pull = {
            "batch": PULL_MESSAGES,
            "max_bytes": max(PULL_BYTES, 2 * self.link.nc.max_payload),
            "expires": int(PULL_EXPIRES_S * NS_PER_S),
            "idle_heartbeat": int(HEARTBEAT_S * NS_PER_S),
        }
        return json.dumps(pull).encode()

    def _on_message(self, subject: bytes, reply: bytes, header: bytes, body: bytes) -> None:
        self._heard_s = now_s()
        delivery = parse_ack_subject(reply)
        if delivery is None:
            self._on_status(*parse_status(header), header)
        elif self.fault is None:
            self._asked -= 1
            self._restarts = 0
            name = subject.decode("utf-8", "replace")
            self._take(Stored(self.stream, self.epoch, *delivery, name, body))
        self._wake.set()

    def _take(self, stored: Stored) -> None:
        """Accept the next message, or the anchor once more; anything else is a fault."""
        anchor = self.anchor
        if stored.sequence == self.received + 1 or (anchor is None and self._may_begin(stored)):
            self.received, self.anchor = stored.sequence, stored
            self.buffer.append(stored)
            self.held_bytes += len(stored.body)
        elif anchor is None or stored != anchor:
            self.fault = self._broken(f"the broker sent {stored.sequence}, not what stood here")

    def _may_begin(self, stored: Stored) -> bool:
        """A stream that expires by age may begin anywhere for a reader from the start."""
        return self.expiring and self.after == 0 and stored.sequence > 0

    def _on_status(self, code: int, text: str, header: bytes) -> None:
        """A heartbeat, the end of one request, or the end of the consumer."""
        if code == STATUS_HEARTBEAT:
            self._restarts = 0
            return
        left = _PENDING.search(header)
        if left is None or code not in ENDED_CODES or text.lower().startswith(GONE_TEXTS):
            self._stale = True
        else:
            self._asked -= int(left[1])

    def _on_denied(self, text: str) -> None:
        self.fault = RefusedError(text)
        self._wake.set()

    def _on_reconnect(self) -> None:
        self._stale = True
        self._wake.set()

    async def _drop(self) -> None:
        """Let go of the consumer; the broker forgets it by itself where this cannot be said."""
        if self._subscription is None:
            return
        for subject in self._permitted:
            self.link.on_denied.pop(subject, None)
        with contextlib.suppress(Exception):
            await self._subscription.unsubscribe()
            await self.link.send(f"$JS.API.CONSUMER.DELETE.{self.stream}.{self._consumer}", b"")
        self._subscription = None

    async def close(self) -> None:
        """Stop reading."""
        self.link.on_reconnect.discard(self._on_reconnect)
        await self._drop()


def now_s() -> float:
    """The event loop's clock."""
    return asyncio.get_running_loop().time()
