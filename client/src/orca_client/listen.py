"""Waiting for what a service decided about a request: the event whose cause is that request."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from nats.aio.msg import Msg
from orca_schemas.errors import MalformedError
from orca_schemas.positions import Position
from orca_schemas.subjects import Kind, Role, Subject

from orca_client.connection import Connection
from orca_client.errors import NoAnswerError

ANSWER_S = 10.0

Answer = tuple[str, dict[str, Any]]
"""An event's name and its data."""


class Answers:
    """The events that a role says about one thing, from the time of listening on."""

    def __init__(self, role: Role) -> None:
        self._role = role
        self._heard: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()

    async def to(self, sequence: int, stream: str, limit_s: float = ANSWER_S) -> Answer:
        """The first event caused by this position. Raises NoAnswerError."""
        try:
            async with asyncio.timeout(limit_s):
                while True:
                    event, envelope = await self._heard.get()
                    if _is_cause(envelope.get("cause"), stream, sequence):
                        return event, envelope.get("data", {})
        except TimeoutError:
            raise NoAnswerError(self._role.value) from None

    async def hear(self, message: Msg) -> None:
        """Take a message of the subscription."""
        with contextlib.suppress(ValueError):
            envelope = json.loads(message.data)
            if isinstance(envelope, dict):
                self._heard.put_nowait((message.subject.rsplit(".", 1)[-1], envelope))


def _is_cause(cause: object, stream: str, sequence: int) -> bool:
    try:
        position = Position.parse(str(cause))
    except MalformedError:
        return False
    return (position.stream, position.sequence) == (stream, sequence)


@contextlib.asynccontextmanager
async def answers_about(
    connection: Connection, namespace: str, kind: Kind, id_: str, role: Role
) -> AsyncIterator[Answers]:
    """Listen to what ``role`` says about this thing; enter before the request is sent."""
    answers = Answers(role)
    where = Subject(namespace, kind, id_, role, "*", "*")
    subscription = await connection.nc.subscribe(str(where), cb=answers.hear)
    await connection.nc.flush()
    try:
        yield answers
    finally:
        await subscription.unsubscribe()


def reason_of(data: dict[str, Any]) -> str:
    """The message of an event's first reason, whichever form it has."""
    reasons = [data["reason"]] if "reason" in data else data.get("reasons") or [{}]
    return str(reasons[0].get("message", reasons[0]))
