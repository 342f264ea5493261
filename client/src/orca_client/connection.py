"""The client's connection: publish an event, ask a question."""

from __future__ import annotations

import asyncio
import json
import os
import re
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from orca_schemas.asks import Reply
from orca_schemas.subjects import Subject, ask_subject, inbox_prefix
from pydantic import BaseModel

from orca_client.errors import (
    BrokerUnreachableError,
    LogFullError,
    NoAnswerError,
    NotSetUpError,
    NotStoredError,
    RefusedError,
)

A = TypeVar("A", bound=BaseModel)

ASK_S = 3.0
PUBLISH_S = 5.0
FULL_CODES = frozenset((10002, 10023, 10047, 10077))
"""JetStream: a stream's, the account's or the server's store has no room."""
_DENIED = re.compile(r'permissions violation for publish to "([^"]*)"')


class Connection:
    """One connection to the broker as one user. An async context manager."""

    def __init__(self, nc: Client, user: str, troubles: Troubles | None = None) -> None:
        self.nc, self.user = nc, user
        self._troubles = troubles or Troubles()

    @classmethod
    async def open(
        cls, url: str, user: str, *, name: str | None = None, password: str | None = None
    ) -> Self:
        """Connect to the first of the ``url``, separated by commas, that answers.

        ``name`` and ``password`` are the broker's, and may stand in the url instead.
        Raises BrokerUnreachableError.
        """
        servers = url.split(",")
        user_of_broker = name or urlsplit(servers[0]).username
        troubles = Troubles(len(servers))
        try:
            nc = await nats.connect(
                servers,
                name="orca-client",
                user=name,
                password=password,
                inbox_prefix=inbox_prefix(user_of_broker),
                connect_timeout=2,
                max_reconnect_attempts=-1,
                allow_reconnect=True,
                ping_interval=10,
                error_cb=troubles.met,
            )
        except (NatsError, OSError, TimeoutError, ValueError) as error:
            raise BrokerUnreachableError(_without_password(url), _why(error)) from None
        troubles.connected = True
        return cls(nc, user, troubles)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.nc.close()

    async def publish(self, subject: Subject, body: bytes) -> int:
        """Publish an event and return its sequence in its stream.

        Raises RefusedError, NotSetUpError (nothing is stored), NotStoredError (outcome unknown).
        """
        try:
            reply = await self.request(str(subject), body, PUBLISH_S)
        except NoRespondersError:
            raise NotSetUpError(str(subject)) from None
        except (NatsError, TimeoutError) as error:
            raise NotStoredError(f"{subject}: not confirmed ({type(error).__name__})") from None
        return sequence_of(reply.data, str(subject))

    async def ask(
        self, answer: type[A], service: str, verb: str, query: BaseModel | None = None,
        namespace: str = "_cluster",
    ) -> A:  # fmt: skip
        """Ask a service. Raises NoAnswerError, RefusedError."""
        reply = await self.ask_reply(service, verb, query, namespace)
        # As JSON: strict models take an enum's text from there only.
        return answer.model_validate_json(json.dumps(reply.data))

    async def ask_reply(
        self, service: str, verb: str, query: BaseModel | None = None, namespace: str = "_cluster"
    ) -> Reply:
        """Ask a service and return the whole reply, with the position it reflects."""
        body = query.model_dump_json(exclude_none=True).encode() if query else b""
        try:
            where = ask_subject(namespace, self.user, service, verb)
            raw = await self.request(where, body, ASK_S)
        except (NatsError, TimeoutError):
            raise NoAnswerError(service) from None
        reply = Reply.model_validate_json(raw.data)
        if not reply.ok:
            problem = reply.error
            assert problem is not None
            raise RefusedError(f"{problem.field}: {problem.value}: {problem.remedy}")
        return reply

    async def request(self, where: str, body: bytes, limit_s: float) -> Msg:
        """Ask and wait for the answer, or for the broker's word that this user may not.

        Raises RefusedError; what nats-py raises where nobody answers.
        """
        answer = asyncio.ensure_future(self.nc.request(where, body, timeout=limit_s))
        denial = self._troubles.denial_of(where)
        try:
            both: list[asyncio.Future[Any]] = [answer, denial]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if denial.done():
                remedy = "connect as one who may: ORCA_NATS_USER, ORCA_NATS_PASSWORD"
                who = self.nc.options.get("user") or "this user"
                raise RefusedError(f"{where}: {who} may not say this to the broker; {remedy}")
            return await answer
        finally:
            answer.cancel()
            denial.cancel()


def sequence_of(ack: bytes, subject: str) -> int:
    """Read a JetStream acknowledgement; raises RefusedError with the broker's reason."""
    answer = json.loads(ack)
    if "error" in answer:
        if answer["error"].get("err_code") in FULL_CODES:
            raise LogFullError(answer.get("stream") or subject, answer["error"]["description"])
        raise RefusedError(f"{subject}: {answer['error'].get('description', answer['error'])}")
    sequence: int = answer["seq"]
    return sequence


def _without_password(url: str) -> str:
    return re.sub(r"//[^/@,]*@", "//", url)


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


class Troubles:
    """What the broker holds against a connection: while it is made, and afterwards."""

    def __init__(self, servers: int = 1) -> None:
        self._left = servers
        self.connected = False
        self._denials: dict[str, set[asyncio.Future[None]]] = {}

    async def met(self, error: Exception) -> None:
        """nats-py's error callback.

        Raises the error of the last server while connecting, which would otherwise go on for
        ever; later, tells whoever waits for a publication that was denied.
        """
        self._left -= 1
        if not self.connected and self._left <= 0:
            raise error
        denied = _DENIED.search(str(error).lower())
        for denial in self._denials.pop(denied[1], set()) if denied else ():
            if not denial.done():
                denial.set_result(None)

    def denial_of(self, subject: str) -> asyncio.Future[None]:
        """Done once the broker denies publishing to a subject, which it names in lower case."""
        denial: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._denials.setdefault(subject.lower(), set()).add(denial)
        denial.add_done_callback(lambda _: self._forget(subject.lower(), denial))
        return denial

    def _forget(self, subject: str, denial: asyncio.Future[None]) -> None:
        waiting = self._denials.get(subject, set())
        waiting.discard(denial)
        if not waiting:
            self._denials.pop(subject, None)
