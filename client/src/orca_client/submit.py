"""Submitting tasks: one, or thousands in a pipeline."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from nats.aio.msg import Msg
from orca_schemas.events.admin import NamespaceSet, PriceSet, PriceTier, QuotaSet
from orca_schemas.events.client import TaskCancelRequested, TaskSubmitted
from orca_schemas.identifiers import CLUSTER, name_id
from orca_schemas.manifest import parse_manifest
from orca_schemas.model import EventData
from orca_schemas.subjects import Kind, Role, Subject, subject

from orca_client.connection import PUBLISH_S, Connection, sequence_of
from orca_client.errors import NotSetUpError, NotStoredError

WINDOW = 512
"""Submissions in flight at once: more only waits in the broker's socket."""
TRIES = 3
NO_RESPONDERS = "503"


@dataclass(frozen=True, slots=True)
class Submission:
    """A task on its way: its id and where the CLIENT stream holds it."""

    task_id: uuid.UUID
    namespace: str
    name: str
    sequence: int


def body_of(data: EventData) -> bytes:
    """The body of an event from outside: type and data, no more is needed."""
    fields = data.model_dump(mode="json")
    return json.dumps({"type": data.type_name(), "data": fields}).encode()


def submission(
    document: Any, user: str, task_id: uuid.UUID | None = None
) -> tuple[Submission, Subject, bytes]:
    """Check a manifest and make its event; raises MalformedError naming the field."""
    manifest = parse_manifest(document)
    chosen = task_id or uuid.uuid4()
    meta = manifest.metadata
    where = subject(
        meta.namespace, Kind.TASK, str(chosen), Role.CLIENT, user, TaskSubmitted.__name__
    )
    # The document as the user wrote it: the log keeps their words.
    body = json.dumps({"type": TaskSubmitted.type_name(), "data": {"manifest": document}}).encode()
    return Submission(chosen, meta.namespace, meta.name, 0), where, body


async def submit(
    connection: Connection, document: Any, task_id: uuid.UUID | None = None
) -> Submission:
    """Submit one task. Raises MalformedError, RefusedError, NotStoredError.

    An unconfirmed publication is repeated with the same task id, which is safe.
    """
    made, where, body = submission(document, connection.user, task_id)
    for attempt in range(TRIES):
        try:
            sequence = await connection.publish(where, body)
        except NotStoredError:
            if attempt == TRIES - 1:
                raise
        else:
            return Submission(made.task_id, made.namespace, made.name, sequence)
    raise AssertionError("unreachable")


async def submit_many(connection: Connection, documents: Iterable[Any]) -> Sequence[Submission]:
    """Submit many tasks, WINDOW of them in flight at a time, in order.

    Every document is checked before the first is sent. Raises like submit; then those before
    the failing one are in the log.
    """
    made = [submission(document, connection.user) for document in documents]
    async with _Pipeline(connection) as pipeline:
        futures = [await pipeline.send(where, body) for _, where, body in made]
        sequences = await asyncio.gather(*futures)
    return [
        Submission(one.task_id, one.namespace, one.name, sequence)
        for (one, _, _), sequence in zip(made, sequences, strict=True)
    ]


class _Pipeline:
    """Publishes without waiting for each acknowledgement; every outcome is a future.

    nats-py's publish_async never resolves a refused publication, so the replies are read here.
    """

    def __init__(self, connection: Connection) -> None:
        self._nc = connection.nc
        self._room = asyncio.Semaphore(WINDOW)
        self._waiting: dict[str, tuple[asyncio.Future[int], Subject]] = {}
        self._inbox = self._nc.new_inbox()
        self._count = 0

    async def __aenter__(self) -> _Pipeline:
        self._subscription = await self._nc.subscribe(f"{self._inbox}.*", cb=self._acknowledged)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._subscription.unsubscribe()

    async def send(self, where: Subject, body: bytes) -> asyncio.Future[int]:
        await self._room.acquire()
        self._count += 1
        reply = f"{self._inbox}.{self._count}"
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting[reply] = (future, where)
        await self._nc.publish(str(where), body, reply=reply)
        asyncio.get_running_loop().call_later(PUBLISH_S, self._expire, reply)
        return future

    async def _acknowledged(self, message: Msg) -> None:
        found = self._waiting.pop(message.subject, None)
        if found is None:
            return
        self._room.release()
        future, where = found
        if message.headers and message.headers.get("Status") == NO_RESPONDERS:
            future.set_exception(NotSetUpError(str(where)))
            return
        try:
            future.set_result(sequence_of(message.data, str(where)))
        except Exception as error:  # noqa: BLE001 - handed to whoever awaits the future
            future.set_exception(error)

    def _expire(self, reply: str) -> None:
        found = self._waiting.pop(reply, None)
        if found is not None:
            self._room.release()
            found[0].set_exception(
                NotStoredError(f"{found[1]}: not confirmed in {PUBLISH_S:.0f} s")
            )


async def cancel(connection: Connection, namespace: str, task_id: uuid.UUID, reason: str) -> int:
    """Ask for the end of a task; the answer is in its events."""
    data = TaskCancelRequested(reason=reason)
    where = subject(
        namespace, Kind.TASK, str(task_id), Role.CLIENT, connection.user, type(data).__name__
    )
    return await connection.publish(where, body_of(data))


async def set_namespace(
    connection: Connection, namespace: str, admins: tuple[str, ...] = ()
) -> int:
    """Make a namespace known, with these admins in place of those before."""
    data = NamespaceSet(admins=admins)
    return await connection.publish(account_subject(connection, namespace, data), body_of(data))


async def set_quota(connection: Connection, account: str, quota: QuotaSet) -> int:
    """Set one limit of an account (in this release: a namespace)."""
    return await connection.publish(account_subject(connection, account, quota), body_of(quota))


def account_subject(connection: Connection, account: str, data: EventData) -> Subject:
    """Where an operator's word about an account goes."""
    event = type(data).__name__
    return subject(account, Kind.ACCOUNT, account, Role.ADMIN, connection.user, event)


async def set_price(
    connection: Connection, sku: str, price_micro_usd: int, effective_at_ms: int | None = None
) -> int:
    """Put a price version into the book; it holds from ``effective_at_ms`` (Unix ms) on.

    None: from the time at which the broker takes it.
    """
    tier = PriceTier(from_quantity=0, price_micro_usd=price_micro_usd)
    data = PriceSet(sku=sku, tiers=(tier,), effective_at_ms=effective_at_ms)
    id_ = str(name_id(Kind.PRICE, sku))
    where = subject(CLUSTER, Kind.PRICE, id_, Role.ADMIN, connection.user, PriceSet.__name__)
    return await connection.publish(where, body_of(data))
