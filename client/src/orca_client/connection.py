"""The client's connection: publish an event, ask a question."""

from __future__ import annotations

import json
import os
from types import TracebackType
from typing import Self, TypeVar

import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from orca_schemas.asks import Reply
from orca_schemas.subjects import Subject, ask_subject, inbox_prefix
from pydantic import BaseModel

from orca_client.errors import (
    BrokerUnreachableError,
    NoAnswerError,
    NotSetUpError,
    NotStoredError,
    RefusedError,
)

A = TypeVar("A", bound=BaseModel)

ASK_S = 3.0
PUBLISH_S = 5.0


class Connection:
    """One connection to the broker as one user. An async context manager."""

    def __init__(self, nc: Client, user: str) -> None:
        self.nc, self.user = nc, user

    @classmethod
    async def open(
        cls, url: str, user: str, *, name: str | None = None, password: str | None = None
    ) -> Self:
        """Connect to the first of the ``url``, separated by commas, that answers.

        ``name`` and ``password`` are the broker's. Raises BrokerUnreachableError.
        """
        servers = url.split(",")
        first = _FirstTry(len(servers))
        try:
            nc = await nats.connect(
                servers,
                name="orca-client",
                user=name,
                password=password,
                inbox_prefix=inbox_prefix(name),
                connect_timeout=2,
                max_reconnect_attempts=-1,
                allow_reconnect=True,
                ping_interval=10,
                error_cb=first.failed,
            )
        except (NatsError, OSError, TimeoutError, ValueError) as error:
            raise BrokerUnreachableError(url, _why(error)) from None
        first.over = True
        return cls(nc, user)

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
            reply = await self.nc.request(str(subject), body, timeout=PUBLISH_S)
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
            raw = await self.nc.request(
                ask_subject(namespace, self.user, service, verb), body, timeout=ASK_S
            )
        except (NatsError, TimeoutError):
            raise NoAnswerError(service) from None
        reply = Reply.model_validate_json(raw.data)
        if not reply.ok:
            problem = reply.error
            assert problem is not None
            raise RefusedError(f"{problem.field}: {problem.value}: {problem.remedy}")
        return reply


def sequence_of(ack: bytes, subject: str) -> int:
    """Read a JetStream acknowledgement; raises RefusedError with the broker's reason."""
    answer = json.loads(ack)
    if "error" in answer:
        raise RefusedError(f"{subject}: {answer['error'].get('description', answer['error'])}")
    sequence: int = answer["seq"]
    return sequence


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


class _FirstTry:
    """Ends nats-py's first connecting, which would otherwise go on for ever, after one round."""

    def __init__(self, servers: int) -> None:
        self._left, self.over = servers, False

    async def failed(self, error: Exception) -> None:
        """Raise the error of the last server; later ones are said where something was asked."""
        self._left -= 1
        if not self.over and self._left <= 0:
            raise error
