"""Following tasks to their ends by asking again: what is told is committed state."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from uuid import UUID

from orca_schemas.asks import CostRow, Costs, RunQuery

from orca_client.connection import Connection
from orca_client.errors import NoAnswerError
from orca_client.view import TaskView, some_views, views

POLL_S = 0.25
PATIENCE_S = 60.0
"""How long services may be silent (a restart, a take-over) before following gives up."""
ONE_BY_ONE = 20
"""More tasks than this are asked for by namespace, which is one question for a thousand."""
SETTLE_S = 5.0


async def follow(
    connection: Connection, tasks: Sequence[tuple[UUID, str]], poll_s: float = POLL_S
) -> AsyncIterator[dict[UUID, TaskView]]:
    """Yield what is known of the tasks, ``(id, namespace)`` each, until all have ended.

    Raises NoAnswerError when nothing answers for PATIENCE_S.
    """
    known: dict[UUID, TaskView] = {}
    heard_s = time.monotonic()
    while True:
        open_tasks = [task for task in tasks if not _ended(known.get(task[0]))]
        try:
            known |= await _ask(connection, open_tasks)
            heard_s = time.monotonic()
        except NoAnswerError:
            if time.monotonic() - heard_s > PATIENCE_S:
                raise
        yield known
        if all(_ended(known.get(task_id)) for task_id, _ in tasks):
            return
        await asyncio.sleep(poll_s)


def _ended(view: TaskView | None) -> bool:
    return view is not None and view.ended


async def _ask(connection: Connection, tasks: Sequence[tuple[UUID, str]]) -> dict[UUID, TaskView]:
    wanted = {task_id for task_id, _ in tasks}
    found: dict[UUID, TaskView] = {}
    if len(wanted) > ONE_BY_ONE:
        for namespace in sorted({namespace for _, namespace in tasks}):
            rows, _ = await views(connection, namespace)
            found |= {view.task_id: view for view in rows if view.task_id in wanted}
    # Old ones of many fall out of the newest thousand: a few of them are asked for by id.
    rest = [task_id for task_id, _ in tasks if task_id not in found][:ONE_BY_ONE]
    return found | await some_views(connection, rest)


async def cost_of(connection: Connection, task_id: UUID) -> CostRow | None:
    """What the task's newest run costs so far; None while nothing was charged."""
    costs = await connection.ask(Costs, "billing", "cost", RunQuery(task_id=task_id))
    return costs.runs[0] if costs.runs else None


async def final_cost_of(
    connection: Connection, task_id: UUID, limit_s: float = SETTLE_S
) -> CostRow | None:
    """Like cost_of, once billing says it is final, or as far as it came in ``limit_s``."""
    deadline_s = time.monotonic() + limit_s
    while True:
        cost = await cost_of(connection, task_id)
        if (cost is not None and cost.final) or time.monotonic() > deadline_s:
            return cost
        await asyncio.sleep(POLL_S)
