"""For tests: a bus in memory that is away when told to be, and assignments to put on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

from orca_runtime.errors import LogUnavailableError
from orca_runtime.log import Outgoing, Stored
from orca_runtime.recorded import Recorded, recorded
from orca_runtime.streams import stream_of
from orca_schemas.asks import Desired, DesiredAttempt, DesiredQuery, Reply
from orca_schemas.identifiers import derived_id
from orca_schemas.manifest import OnNodeLoss, Priority, TaskType
from orca_schemas.model import EventData
from orca_schemas.positions import Position
from orca_schemas.spec import TaskSpec
from orca_schemas.values import Slot

from orca_node_agent.ports import AskFailedError

EPOCH = 1_700_000_000_000_000_000


class MemoryBus:
    """Stores what is published, and answers ``placement.desired`` with what a test says.

    ``away``: the broker cannot be reached. ``lose_acks``: so many publishes are stored and then
    reported as unknown. ``silent``: the broker is there, placement is not. ``page``: attempts per
    answer. ``known_boot``: the only boot that is known; None: whichever asks.
    """

    def __init__(self) -> None:
        self.messages: list[Outgoing] = []
        self.beats: list[bytes] = []
        self.away = False
        self.silent = False
        self.lose_acks = 0
        self.known = True
        self.known_boot: UUID | None = None
        self.sequence = 0
        self.page = 1000
        self.attempts: dict[str, DesiredAttempt] = {}
        self._hints: asyncio.Queue[None] = asyncio.Queue()

    async def publish(self, message: Outgoing) -> Position:
        """See Bus.publish."""
        if self.away:
            raise LogUnavailableError("away")
        self.messages.append(message)
        if self.lose_acks > 0:
            self.lose_acks -= 1
            raise LogUnavailableError("the acknowledgement was lost")
        return Position("NODE", EPOCH, len(self.messages))

    async def beat(self, subject: str, body: bytes) -> None:
        """See Bus.beat."""
        if self.away:
            raise LogUnavailableError("away")
        self.beats.append(body)

    async def ask(self, subject: str, body: bytes, timeout_s: float) -> bytes:
        """See Bus.ask."""
        if self.away or self.silent:
            raise AskFailedError("away")
        query = DesiredQuery.model_validate_json(body)
        after, known = query.after, self.known and self.known_boot in (None, query.boot_id)
        wanted = sorted(self.attempts.values(), key=lambda one: one.run_id)
        rest = [one for one in wanted if after is None or one.run_id > after]
        desired = Desired(
            sequence=self.sequence,
            known=known,
            attempts=tuple(rest[: self.page]) if known else (),
            more=len(rest) > self.page,
        )
        position = str(Position("PLACEMENT", EPOCH, self.sequence))
        reply = Reply(ok=True, position=position, data=desired.model_dump(mode="json"))
        return reply.model_dump_json(exclude_none=True).encode()

    async def hints(self) -> AsyncIterator[None]:
        """See Bus.hints."""
        while True:
            await self._hints.get()
            yield None

    def want(self, *attempts: DesiredAttempt) -> None:
        """From now on exactly these belong on the node."""
        self.sequence += 1
        self.attempts = {f"{one.run_id}-{one.attempt}": one for one in attempts}
        self._hints.put_nowait(None)

    def events(self) -> list[Recorded]:
        """Every event published, decoded, repeats of an id left out."""
        unique = {message.id: message for message in self.messages if _is_event(message)}
        return [_recorded(number, message) for number, message in enumerate(unique.values(), 1)]

    def said(self, event: type[Any]) -> list[Any]:
        """The data of every event of one kind, in order."""
        found: list[EventData] = [one.data for one in self.events()]
        return [data for data in found if isinstance(data, event)]


def _is_event(message: Outgoing) -> bool:
    return stream_of(message.subject) is not None


def _recorded(number: int, message: Outgoing) -> Recorded:
    stream = stream_of(message.subject)
    assert stream is not None
    return recorded(Stored(stream, EPOCH, number, 0, message.subject, message.body))


def a_spec(**changes: Any) -> TaskSpec:
    """A CPU task that runs ``true``, with what a test changes of it."""
    plain = TaskSpec(
        namespace="team-alpha",
        name="job",
        user="alice",
        task_type=TaskType.BATCH,
        gpu=None,
        cpu_milli=1000,
        memory_mib=128,
        token_quota=None,
        image="none",
        command=("true",),
        env=(),
        backoff_limit=0,
        on_node_loss=OnNodeLoss.WAIT,
        active_deadline_ms=None,
        priority=Priority.NORMAL,
        queue="default",
        estimated_duration_ms=None,
        report_interval_ms=30_000,
    )
    return plain.model_copy(update=changes)


def an_attempt(number: int = 1, **changes: Any) -> DesiredAttempt:
    """The first attempt of run ``number``; ``spec`` may be a dict of changes to a_spec."""
    spec = changes.pop("spec", {})
    plain = DesiredAttempt(
        run_id=derived_id(0, "test run", number),
        task_id=derived_id(0, "test task", number),
        spec=a_spec(**spec) if isinstance(spec, dict) else spec,
        attempt=1,
        fence=str(Position("PLACEMENT", EPOCH, number)),
        slots=(),
        granted_tokens=None,
        lease_base_tokens=0,
    )
    return plain.model_copy(update=changes)


def a_slot(gpu_uuid: str = "GPU-1", **changes: Any) -> Slot:
    """One whole A100."""
    plain = Slot(
        gpu_uuid=gpu_uuid, gpu_type="A100", gpu_milli=1000, memory_mib=81_920, exclusive=True
    )
    return plain.model_copy(update=changes)
