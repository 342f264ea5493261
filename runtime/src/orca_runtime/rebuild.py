"""Building a projection anew from the log while the old one is read and written on.

1 make shadow tables 2 write the log into them 3 with the live writer held back, bring them as far
as the live tables are 4 exchange the two. Readers see the old rows, then the new: never half. Until
the exchange nothing of the live tables is touched, so whoever dies before it leaves them whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable
from uuid import uuid4

import structlog
from orca_schemas.asks import Rebuild, RebuildPart, RebuildQuery
from orca_schemas.errors import MalformedError
from orca_schemas.identifiers import CLUSTER
from orca_schemas.positions import Cursor

from orca_runtime.asks import Ask, LogVerb
from orca_runtime.inbox import read_input
from orca_runtime.log import EventLog, Stored, StreamState
from orca_runtime.past import messages
from orca_runtime.projector import Projector
from orca_runtime.recorded import Recorded, Unreadable

BATCH_ROWS = 1_000
"""Smaller than a live batch: the service decides between two of them."""
READ_AT_ONCE = 100
"""Messages read before the service has its turn: a lease must be renewed meanwhile."""
CLOSE = 5_000
"""So few events behind the live tables may hold their writer back for the rest."""

_log = structlog.get_logger(__name__)


@runtime_checkable
class Rebuildable(Protocol):
    """A sink that can be filled anew beside itself."""

    async def shadow_open(self) -> None:
        """Make the shadow, empty; one that was left behind is gone."""
        ...

    async def shadow_keep(self, state: StreamState) -> None:
        """Copy what the live tables hold of events that the log no longer has."""
        ...

    async def shadow_write(self, batch: Sequence[Recorded | Unreadable]) -> None:
        """Write a batch into the shadow."""
        ...

    async def shadow_swap(self) -> None:
        """Let the shadow be the live one, and drop the old."""
        ...


class Rebuilder:
    """Rebuilds all projections of a service, one at a time, when asked to."""

    def __init__(
        self, projectors: Sequence[Projector], log: EventLog, active: Callable[[], bool]
    ) -> None:
        self._projectors = [one for one in projectors if isinstance(one.sink, Rebuildable)]
        self._log, self._active = log, active
        self._now = Rebuild(state="idle")
        self._parts: dict[tuple[str, str], RebuildPart] = {}
        self._task: asyncio.Task[None] | None = None

    def verb(self) -> LogVerb:
        """The verb ``rebuild``: begins one where asked to and none runs; says how far it is."""
        return LogVerb(RebuildQuery, self._answer)

    async def _answer(self, _log: EventLog, query: RebuildQuery, ask: Ask) -> Rebuild:
        if query.start and ask.namespace != CLUSTER:
            raise MalformedError(
                "namespace", ask.namespace, f"tables are everybody's: use {CLUSTER}"
            )
        if query.start and self._now.state != "running":
            self._parts = {}
            self._now = Rebuild(state="running", id=uuid4().hex)
            self._task = asyncio.create_task(self._run())
        return self._now.model_copy(update={"parts": tuple(self._parts.values())})

    async def _run(self) -> None:
        try:
            for projector in self._projectors:
                for stream in projector.streams:
                    await self._say(projector, stream, 0)
            for projector in self._projectors:
                await self._rebuild(projector)
            self._now = self._now.model_copy(update={"state": "done"})
        except Exception as error:  # noqa: BLE001 - whatever the sink's client raises
            reason = f"{type(error).__name__}: {error}"
            _log.error("rebuild failed", reason=reason)
            self._now = self._now.model_copy(update={"state": "failed", "reason": reason})

    async def _rebuild(self, projector: Projector) -> None:
        sink = projector.sink
        assert isinstance(sink, Rebuildable)
        await sink.shadow_open()
        done: Cursor = {}
        for stream in projector.streams:
            state = await self._log.state(stream)
            done[stream] = (state.epoch, 0)
            await sink.shadow_keep(state)
        while True:
            ends = {name: (await self._log.state(name)).last_sequence for name in done}
            behind = sum(end - done[name][1] for name, end in ends.items())
            if behind <= CLOSE:
                break
            await self._write_to(projector, sink, done, ends)
        async with projector.gate:
            live = {name: sequence for name, (_, sequence) in projector.done.items()}
            ends = {name: max(ends[name], live.get(name, 0)) for name in done}
            await self._write_to(projector, sink, done, ends)
            await sink.shadow_swap()

    async def _write_to(
        self, projector: Projector, sink: Rebuildable, done: Cursor, ends: dict[str, int]
    ) -> None:
        for stream, (epoch, after) in list(done.items()):
            batch: list[Stored] = []
            async for stored in messages(self._log, stream, after, ends[stream]):
                batch.append(stored)
                if len(batch) >= BATCH_ROWS or stored.sequence >= ends[stream]:
                    if not self._active():
                        raise RuntimeError("this replica stood down")
                    await sink.shadow_write(await _inputs(batch))
                    batch = []
                    await self._say(projector, stream, stored.sequence)
            done[stream] = (epoch, max(after, ends[stream]))

    async def _say(self, projector: Projector, stream: str, at: int) -> None:
        end = (await self._log.state(stream)).last_sequence
        part = RebuildPart(projector=projector.name, stream=stream, at=at, end=max(at, end))
        self._parts[projector.name, stream] = part


async def _inputs(batch: Sequence[Stored]) -> list[Recorded | Unreadable]:
    found: list[Recorded | Unreadable] = []
    for start in range(0, len(batch), READ_AT_ONCE):
        found.extend(map(read_input, batch[start : start + READ_AT_ONCE]))
        await asyncio.sleep(0)
    return found
