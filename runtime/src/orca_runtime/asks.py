"""Questions over request and reply, answered from committed state by the active replica.

FastStream carries them: subscription, middleware and the AsyncAPI document are its work.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from faststream.nats import NatsBroker
from faststream.nats.annotations import NatsMessage
from faststream.nats.prometheus import NatsPrometheusMiddleware
from orca_schemas.asks import AskError, Reply
from orca_schemas.errors import (
    SHOWN_REMEDY_CHARS,
    MalformedError,
    from_validation,
    printable,
)
from orca_schemas.positions import Position
from orca_schemas.subjects import ask_subject
from prometheus_client import CollectorRegistry
from pydantic import BaseModel, ValidationError

from orca_runtime.connection import connection_options
from orca_runtime.settings import ServiceSettings
from orca_runtime.shell import DeciderShell

STANDBY_WAIT_S = 0.2
"""Whoever asks takes the first answer: the active replica's, if there is one."""


MAX_REPLY_BYTES = 1_000_000
"""The broker carries 1 MiB a message, header and all. An answer with more rows than fit is given
with fewer; one that cannot be made smaller is refused, since none at all would say nothing."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Who asks, and what the answer reflects. ``sequence`` is of the own stream."""

    namespace: str
    user: str
    now_ms: int
    sequence: int


@dataclass(frozen=True)
class Verb:
    """A question answered from state: ``answer(state, query, ask)`` is pure.

    ``asked_from`` is the namespace that is listened to. What others ask does not arrive, so no
    flood of theirs stands before the questions that matter.
    """

    query: type[BaseModel] | None
    answer: Callable[[Any, Any, Ask], BaseModel]
    asked_from: str = "*"


@dataclass(frozen=True)
class LogVerb:
    """A question answered by reading the log: ``answer(log, query, ask)``."""

    query: type[BaseModel] | None
    answer: Callable[[Any, Any, Ask], Awaitable[BaseModel]]


Verbs = Mapping[str, Verb | LogVerb]


class AskServer:
    """Answers a service's verbs. A replica that is not active tells only its status, and late."""

    def __init__(
        self,
        service: str,
        shell: DeciderShell[Any],
        verbs: Verbs,
        settings: ServiceSettings,
        registry: CollectorRegistry,
    ) -> None:
        self._service, self._shell, self._verbs = service, shell, verbs
        self.broker = NatsBroker(
            settings.nats_url,
            name=f"orca-{service}-asks",
            middlewares=(NatsPrometheusMiddleware(registry=registry, app_name=f"orca-{service}"),),
            logger=None,
            apply_types=True,
            graceful_timeout=5.0,
            **connection_options(settings),
        )
        for verb in verbs:
            self._subscribe(verb)

    async def start(self) -> None:
        """Listen; returns once the broker knows every subscription."""
        await self.broker.start()
        nc = await self.broker.connect()
        # Twice: nats-py writes a flush's PING at once, before the subscriptions that still wait
        # for its flusher; the second PING comes after them.
        await nc.flush()
        await nc.flush()

    def _subscribe(self, verb: str) -> None:
        async def handle(message: NatsMessage) -> None:
            await self._handle(verb, message)

        handle.__name__ = f"{self._service}_{verb}"
        chosen = self._verbs[verb]
        asked_from = chosen.asked_from if isinstance(chosen, Verb) else "*"
        # no_reply: the reply is sent by hand, so that a silent standby sends none at all.
        self.broker.subscriber(
            ask_subject(asked_from, "*", self._service, verb),
            no_reply=True,
            max_workers=None,
            title=f"{self._service}.{verb}",
            description=f"Answers {self._service}.{verb} from committed state",
        )(handle)

    async def _handle(self, verb: str, message: NatsMessage) -> None:
        raw = message.raw_message
        chosen = self._verbs[verb]
        if not raw.reply or not (self._shell.active or verb == "status"):
            return
        if not self._shell.active:
            await asyncio.sleep(STANDBY_WAIT_S)
        reply = await self._answer(chosen, raw.subject, raw.data)
        await self.broker.publish(
            reply,
            subject=raw.reply,
            headers={},
            timeout=2.0,
        )

    async def _answer(self, verb: Verb | LogVerb, subject: str, body: bytes) -> bytes:
        """The reply, as large as the broker carries."""
        try:
            query = _query(verb.query, body)
            reply = await self._reply(verb, subject, query)
            while len(reply) > MAX_REPLY_BYTES:
                query = _fewer(query, len(reply))
                reply = await self._reply(verb, subject, query)
        except MalformedError as error:
            problem = AskError(field=error.field, value=error.value, remedy=error.remedy)
        except Exception as error:  # noqa: BLE001 - a question must not stop the service
            problem = AskError(field="ask", value=subject, remedy=_said(error))
        else:
            return reply
        return _written(Reply(ok=False, error=problem))

    async def _reply(self, verb: Verb | LogVerb, subject: str, query: BaseModel | None) -> bytes:
        _, _, namespace, user, _, _ = subject.split(".")
        folded = self._shell.folded
        ask = Ask(namespace, user, time.time_ns() // 1_000_000, folded.sequence)
        if isinstance(verb, LogVerb):
            data = await verb.answer(self._shell.log, query, ask)
        else:
            data = verb.answer(folded.state, query, ask)
        stream = self._shell.decider.stream
        position = str(Position(stream, self._shell.epoch, folded.sequence))
        return _written(Reply(ok=True, position=position, data=data.model_dump(mode="json")))


def _written(reply: Reply) -> bytes:
    return reply.model_dump_json(exclude_none=True).encode()


def _said(error: Exception) -> str:
    return printable(f"{type(error).__name__}: {error}", SHOWN_REMEDY_CHARS)


def _fewer(query: BaseModel | None, found_bytes: int) -> BaseModel:
    """The same question about half as many rows. Raises MalformedError where there is no half."""
    limit = getattr(query, "limit", 1)
    if query is None or limit <= 1:
        remedy = f"an answer has at most {MAX_REPLY_BYTES} bytes; ask about less"
        raise MalformedError("answer", f"{found_bytes} bytes", remedy)
    return query.model_copy(update={"limit": limit // 2})


def _query(model: type[BaseModel] | None, body: bytes) -> BaseModel | None:
    if model is None:
        return None
    try:
        return model.model_validate_json(body or b"{}")
    except ValidationError as error:
        raise from_validation(error) from None
