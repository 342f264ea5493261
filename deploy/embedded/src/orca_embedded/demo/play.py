"""Playing the story on a running stack: set prices and quotas, submit, watch, collect."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from orca_client.connection import Connection
from orca_client.errors import NoAnswerError
from orca_client.follow import cost_of, follow
from orca_client.limits import parse_limit
from orca_client.listen import answers_about, reason_of
from orca_client.money import parse_price_micro_usd
from orca_client.submit import cancel, set_namespace, set_price, set_quota, submit
from orca_client.view import TaskView, view_of
from orca_schemas.asks import Gpus, History, HistoryEvent, LogQuery, Logs, TaskQuery
from orca_schemas.identifiers import CLUSTER, name_id
from orca_schemas.subjects import Kind, Role, Stream

from orca_embedded.demo.problem import DemoError
from orca_embedded.demo.story import FIRST, PRICES, QUOTAS, REST, Part

USER = "demo"
PLAY_S = 75.0
"""All tasks have ended by then, or the demo fails and says which has not."""
SETTLE_S = 20.0
LEAVE_S = 5.0
POLL_S = 0.1

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Played:
    """One task after its end: what became of it, every event of its life, what it wrote."""

    part: Part
    view: TaskView
    events: tuple[HistoryEvent, ...]
    output: str

    def first(self, event: str) -> dict[str, Any] | None:
        """The data of the first event of this name."""
        return next((one.data for one in self.events if one.event == event), None)


@dataclass(frozen=True, slots=True)
class Play:
    """What happened. ``idle_gpus`` of ``all_gpus`` were free when FIRST was refused."""

    tasks: tuple[Played, ...]
    idle_gpus: int
    all_gpus: int


async def play(connection: Connection, say: Say) -> Play:
    """Play the story to its end. Raises DemoError; then no task of it is left running."""
    await _set_up(connection, say)
    ids: list[tuple[UUID, Part]] = []
    said: dict[UUID, str] = {}
    try:
        async with asyncio.timeout(PLAY_S):
            ids.append(await _submit(connection, FIRST))
            await _watch(connection, ids, said, say)
            gpus = (await connection.ask(Gpus, "placement", "gpus")).gpus
            for part in REST:
                ids.append(await _submit(connection, part))
            say(f"submitted {len(ids)} tasks of {len(QUOTAS)} teams")
            await _watch(connection, ids, said, say)
    except TimeoutError:
        unended = await _unended(connection, ids)
        raise DemoError(f"not all tasks ended in {PLAY_S:.0f} s: {unended}") from None
    finally:
        await _leave(connection, ids)
    say("waiting until metering and billing say final")
    await _settled(connection, ids)
    tasks = [await _collect(connection, task_id, part) for task_id, part in ids]
    idle = sum(row.milli_free == 1000 for row in gpus)
    return Play(tuple(tasks), idle, len(gpus))


async def _set_up(connection: Connection, say: Say) -> None:
    say("setting prices")
    for sku, usd in PRICES.items():
        id_ = str(name_id(Kind.PRICE, sku))
        async with answers_about(connection, CLUSTER, Kind.PRICE, id_, Role.BILLING) as answers:
            sequence = await set_price(connection, sku, parse_price_micro_usd(usd))
            event, data = await answers.to(sequence, Stream.ADMIN)
        if data.get("fact", {}).get("kind") != "price":
            raise DemoError(f"price {sku} was not taken: {event} {data.get('about')}")
    say(f"setting quotas of {', '.join(QUOTAS)}")
    for team, limits in QUOTAS.items():
        async with answers_about(connection, team, Kind.ACCOUNT, team, Role.ADMISSION) as answers:
            sequences = [await set_namespace(connection, team)]
            sequences += [await set_quota(connection, team, parse_limit(text)) for text in limits]
            for sequence in sequences:
                event, data = await answers.to(sequence, Stream.ADMIN)
                if event == "RequestRefused":
                    raise DemoError(f"quota of {team} was refused: {reason_of(data)}")


async def _submit(connection: Connection, part: Part) -> tuple[UUID, Part]:
    made = await submit(connection, part.manifest())
    return made.task_id, part


async def _watch(
    connection: Connection, ids: Sequence[tuple[UUID, Part]], said: dict[UUID, str], say: Say
) -> None:
    """Follow the tasks to their ends and tell each change."""
    tasks = [(task_id, part.team) for task_id, part in ids]
    async for known in follow(connection, tasks, POLL_S):
        for task_id, part in ids:
            view = known.get(task_id)
            text = _state_words(view) if view else ""
            if text and said.get(task_id) != text:
                said[task_id] = text
                say(f"{part.team}/{part.name}: {text}")


def _state_words(view: TaskView) -> str:
    node = f" on {view.node}" if view.node else ""
    why = f" ({view.reasons[0].code})" if view.reasons else ""
    return f"{view.state}{node}{why}"


async def _unended(connection: Connection, ids: Sequence[tuple[UUID, Part]]) -> str:
    found = []
    for task_id, part in ids:
        view = await view_of(connection, task_id)
        if view is None or not view.ended:
            state = _state_words(view) if view else "submitted"
            found.append(f"{part.team}/{part.name} is {state}")
    return ", ".join(found)


async def _leave(connection: Connection, ids: Sequence[tuple[UUID, Part]]) -> None:
    """End what has not ended: on the good path nothing, else nothing may run on."""
    try:
        async with asyncio.timeout(LEAVE_S):
            while open_tasks := await _open(connection, ids):
                for task_id, part in open_tasks:
                    await cancel(connection, part.team, task_id, "the demo ends")
                await asyncio.sleep(0.5)
    except (TimeoutError, NoAnswerError):
        return


async def _open(
    connection: Connection, ids: Sequence[tuple[UUID, Part]]
) -> list[tuple[UUID, Part]]:
    views = [(await view_of(connection, task_id), task_id, part) for task_id, part in ids]
    return [(task_id, part) for view, task_id, part in views if view is None or not view.ended]


async def _settled(connection: Connection, ids: Sequence[tuple[UUID, Part]]) -> None:
    """Wait until billing says that every placed run's cost is final. Raises DemoError."""
    deadline_s = time.monotonic() + SETTLE_S
    for task_id, part in ids:
        if part is FIRST:
            continue
        while (cost := await cost_of(connection, task_id)) is None or not cost.final:
            if time.monotonic() > deadline_s:
                name = f"{part.team}/{part.name}"
                raise DemoError(f"the cost of {name} is not final in {SETTLE_S:.0f} s")
            await asyncio.sleep(POLL_S)


async def _collect(connection: Connection, task_id: UUID, part: Part) -> Played:
    view = await view_of(connection, task_id)
    assert view is not None, "it was followed to its end"
    history = await connection.ask(History, "admission", "history", TaskQuery(task_id=task_id))
    return Played(part, view, history.events, await _output(connection, task_id))


async def _output(connection: Connection, task_id: UUID) -> str:
    query = LogQuery(task_id=task_id)
    answer = await connection.ask(Logs, "admission", "logs", query)
    return "".join(chunk.text for chunk in answer.chunks)
