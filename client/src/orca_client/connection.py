"""The client's connection: publish an event, ask a question."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Self, TypeVar

import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from orca_schemas.asks import Reply
from orca_schemas.subjects import Subject, ask_subject
from pydantic import BaseModel

from orca_client.errors import (
    BrokerUnreachableError,
    NoAnswerError,
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
        """Connect; ``name`` and ``password`` are the broker's. Raises BrokerUnreachableError."""
        try:
            nc = await nats.connect(
                url,
                name="orca-client",
                user=name,
                password=password,
                connect_timeout=2,
                max_reconnect_attempts=-1,
                allow_reconnect=True,
                ping_interval=10,
                error_cb=_quiet,
            )
        except (NatsError, OSError, TimeoutError) as error:
            raise BrokerUnreachableError(url, str(error) or type(error).__name__) from None
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

        Raises RefusedError (nothing is stored), NotStoredError (the outcome is unknown).
        """
        try:
            reply = await self.nc.request(str(subject), body, timeout=PUBLISH_S)
        except NoRespondersError:
            raise RefusedError(
                f"{subject}: no stream takes this subject; is Orca set up?"
            ) from None
        except (NatsError, TimeoutError) as error:
            raise NotStoredError(f"{subject}: not confirmed ({type(error).__name__})") from None
        return sequence_of(reply.data, str(subject))

    async def ask(
        self, answer: type[A], service: str, verb: str, query: BaseModel | None = None,
        namespace: str = "_cluster",
    ) -> A:  # fmt: skip
        """Ask a service. Raises NoAnswerError, RefusedError."""
        return answer.model_validate((await self.ask_reply(service, verb, query, namespace)).data)

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


async def _quiet(_: Exception) -> None:
    """What went wrong is said where it was asked for."""
