"""One connection to the broker; every request is answered, unanswered or never sent."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import nats.errors
from nats.aio.client import Server

from orca_runtime.errors import LogError, LogUnavailableError
from orca_runtime.jetstream.protocol import TolerantClient
from orca_runtime.jetstream.wire import STATUS_NO_RESPONDERS, parse_status

CONNECT_TIMEOUT_S = 2
PING_INTERVAL_S = 10
MAX_OUTSTANDING_PINGS = 2
RECONNECT_FIRST_S = 0.05
RECONNECT_MOST_S = 2.0
READ_BUFFER_BYTES = 2 * 1024 * 1024
"""nats-py's default: what a reading connection may hold back for the time it is disconnected."""

_log = logging.getLogger(__name__)
_DENIED = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"')


class RefusedError(LogError):
    """The broker refuses for a reason that no retry cures: a permission, a missing stream."""


class UnansweredError(Exception):
    """Sent, and no answer came: it may have been done."""


class NotSentError(Exception):
    """Never left this process, or reached nobody: it was not done."""


@dataclass(frozen=True, slots=True)
class Access:
    """Where and as whom to connect. ``creds`` is the path of a NATS credentials file."""

    url: str
    name: str
    user: str | None = None
    password: str | None = None
    creds: str | None = None
    inbox_prefix: str = "_INBOX"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: NATS header block (may be empty) and body."""

    header: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class _Waiting:
    subjects: frozenset[str]
    future: asyncio.Future[Answer]


class Link:
    """One connection that reconnects for ever, with jitter. See ``open``."""

    def __init__(self, access: Access) -> None:
        self.nc = TolerantClient()
        self.closed = asyncio.Event()
        """Set when the connection is gone for good: by close(), or by a fatal answer."""
        self.up = asyncio.Event()
        self.reconnects = 0
        self.on_reconnect: set[Callable[[], None]] = set()
        self.on_denied: dict[str, Callable[[str], None]] = {}
        """By lower-case subject: told when the broker denies publishing there."""
        self._access = access
        self._waiting: dict[bytes, _Waiting] = {}
        self._tokens = itertools.count(1)
        self._inbox = ""
        self._deaf = ""
        """Why no answer can reach this connection, if so."""
        self._refused: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def inbox_prefix(self) -> str:
        """What every inbox of this connection begins with (permissions name it)."""
        return self._access.inbox_prefix

    @classmethod
    async def open(cls, access: Access, *, pending_size: int, wait_s: float) -> Link:
        """Connect within ``wait_s``; ``pending_size`` 0 sends nothing late (a writer's choice).

        Raises LogUnavailableError, RefusedError for wrong credentials.
        """
        link = cls(access)
        connecting = asyncio.create_task(link._connect(pending_size))
        try:
            await asyncio.wait(
                (connecting, link._refused), timeout=wait_s, return_when=asyncio.FIRST_COMPLETED
            )
            if not connecting.done():
                raise link._why_not_connected(wait_s)
            await connecting
        except BaseException:
            connecting.cancel()
            await link.close()
            raise
        link._refused.cancel()
        return link

    def _why_not_connected(self, wait_s: float) -> LogError:
        if self._refused.done():
            return RefusedError(f"{self._access.url}: {self._refused.result()}")
        last = self.nc.last_error
        return LogUnavailableError(f"{self._access.url}: not connected in {wait_s} s: {last}")

    async def _connect(self, pending_size: int) -> None:
        await self.nc.connect(
            self._access.url,
            name=self._access.name,
            user=self._access.user,
            password=self._access.password,
            user_credentials=self._access.creds,
            inbox_prefix=self._access.inbox_prefix,
            pending_size=pending_size,
            connect_timeout=CONNECT_TIMEOUT_S,
            reconnect_time_wait=0.5,  # type: ignore[arg-type]
            max_reconnect_attempts=-1,
            ping_interval=PING_INTERVAL_S,
            max_outstanding_pings=MAX_OUTSTANDING_PINGS,
            reconnect_to_server_handler=_next_server,
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnect,
            reconnected_cb=self._on_reconnect,
            closed_cb=self._on_closed,
        )
        self._inbox = f"{self.inbox_prefix}.{uuid4().hex}"
        await self.nc.subscribe_raw(f"{self._inbox}.*", self._on_answer)
        self.up.set()

    async def request(
        self,
        subject: str,
        body: bytes,
        headers: dict[str, str] | None = None,
        *,
        timeout_s: float,
        also: Iterable[str] = (),
    ) -> Answer:
        """Send and wait for the one answer. A denial for a subject in ``also`` fails it too.

        Raises UnansweredError, NotSentError, RefusedError.
        """
        if self._deaf:
            raise RefusedError(self._deaf)
        if self.closed.is_set():
            raise NotSentError("the connection is closed")
        token = b"%d" % next(self._tokens)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        subjects = frozenset(s.lower() for s in (subject, *also))
        self._waiting[token] = _Waiting(subjects, future)
        sent = False
        try:
            async with asyncio.timeout(timeout_s):
                await self.up.wait()
                await self.send(subject, body, headers, f"{self._inbox}.{token.decode()}")
                sent = True
                return await future
        except TimeoutError:
            if not sent:
                raise NotSentError(f"{subject}: not connected for {timeout_s} s") from None
            raise UnansweredError(f"{subject}: no answer in {timeout_s} s") from None
        finally:
            del self._waiting[token]

    async def send(
        self, subject: str, body: bytes, headers: dict[str, str] | None = None, reply: str = ""
    ) -> None:
        """Send without waiting. Raises NotSentError, RefusedError."""
        try:
            await self.nc.publish(subject, body, reply=reply, headers=headers)
        except (nats.errors.OutboundBufferLimitError, nats.errors.ConnectionClosedError) as error:
            raise NotSentError(f"{subject}: {type(error).__name__}") from error
        except (
            nats.errors.MaxPayloadError,
            nats.errors.BadSubjectError,
            nats.errors.BadHeaderError,
        ) as error:
            raise RefusedError(f"{subject}: {error}") from error

    def _on_answer(self, subject: bytes, _reply: bytes, header: bytes, body: bytes) -> None:
        waiting = self._waiting.get(subject.rpartition(b".")[2])
        if waiting is None or waiting.future.done():
            return
        if not body and parse_status(header)[0] == STATUS_NO_RESPONDERS:
            waiting.future.set_exception(NotSentError("nobody listens: no stream takes this"))
        else:
            waiting.future.set_result(Answer(header, body))

    async def _on_error(self, error: Exception) -> None:
        """nats-py's error callback: must never raise, or its read loop dies."""
        text = str(error).lower()
        _log.warning("broker connection %s: %s", self._access.name, text or repr(error))
        if "authorization violation" in text and not self._refused.done():
            self._refused.set_result(text)
        denied = _DENIED.search(text)
        if denied is not None:
            self._deny(denied[1], denied[2], text)

    def _deny(self, operation: str, subject: str, text: str) -> None:
        if operation == "subscription" and subject == f"{self._inbox}.*".lower():
            self._deaf = text
        for waiting in self._waiting.values():
            if (self._deaf or subject in waiting.subjects) and not waiting.future.done():
                waiting.future.set_exception(RefusedError(text))
        told = self.on_denied.get(subject)
        if told is not None:
            told(text)

    async def _on_disconnect(self) -> None:
        self.up.clear()
        for waiting in self._waiting.values():
            if not waiting.future.done():
                waiting.future.set_exception(UnansweredError("the connection was lost"))

    async def _on_reconnect(self) -> None:
        self.reconnects += 1
        self.up.set()
        for told in tuple(self.on_reconnect):
            told()

    async def _on_closed(self) -> None:
        self.up.clear()
        self.closed.set()
        for told in tuple(self.on_reconnect):
            told()

    async def close(self) -> None:
        """Close for good."""
        self.closed.set()
        with contextlib.suppress(Exception):
            await self.nc.close()


def _next_server(servers: list[Server], _info: dict[str, Any]) -> tuple[Server, float]:
    """Choose where to reconnect and how long to wait: exponential, with full jitter."""
    tries = min(server.reconnects for server in servers)
    most = min(RECONNECT_MOST_S, RECONNECT_FIRST_S * 2 ** min(tries, 16))
    return random.choice(servers), random.uniform(0, most)
