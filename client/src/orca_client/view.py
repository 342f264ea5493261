"""A task as a person sees it: what admission and what placement say of it, as one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from orca_schemas.asks import MAX_ROWS, TaskQuery, TaskRow, Tasks
from orca_schemas.values import Outcome, Reason

from orca_client.connection import Connection
from orca_client.errors import NotFoundError

SUBMITTED = "submitted"
QUEUED = "queued"
ADMITTED = "admitted"
DEFERRED = "deferred"
STARTING = "starting"
RUNNING = "running"
STOPPING = "stopping"
WAITING_STATES = frozenset({QUEUED, DEFERRED})
REJECTIONS = frozenset({"refused", "denied", "expired", "cancelled"})

_ENDED = "ended"
_OF_PLACEMENT = {"pending": ADMITTED, "placed": STARTING}


@dataclass(frozen=True, slots=True)
class TaskView:
    """One task. ``state`` is a word of this module while it lives, else its outcome."""

    task_id: UUID
    run_id: UUID
    namespace: str
    name: str
    user: str
    state: str
    ended: bool
    node: str | None
    attempt: int
    reasons: tuple[Reason, ...]
    used_tokens: int
    token_quota: int | None
    gpu_type: str | None
    gpu_milli: int
    submitted_at_ms: int
    since_ms: int
    queue_position: int | None

    @property
    def succeeded(self) -> bool:
        """Whether it ended well."""
        return self.ended and self.state == Outcome.SUCCEEDED

    @property
    def refused(self) -> bool:
        """Whether it ended before anything was reserved for it, by no wish of its owner."""
        return self.ended and self.state in REJECTIONS and self.state != Outcome.CANCELLED


def merged(admission: TaskRow | None, placement: TaskRow | None) -> TaskView | None:
    """Make one view of what the two say; None where neither knows the task."""
    row = admission or placement
    if row is None:
        return None
    seen = placement if placement is not None and placement.run_id == row.run_id else None
    state, ended = _state(admission, seen)
    newest = seen or row
    return TaskView(
        task_id=row.task_id,
        run_id=row.run_id,
        namespace=row.namespace,
        name=row.name,
        user=row.user,
        state=state,
        ended=ended,
        node=newest.node or row.node,
        attempt=max(row.attempt, newest.attempt),
        reasons=row.reasons if seen is None or (row.reasons and not seen.reasons) else seen.reasons,
        used_tokens=row.used_tokens,
        token_quota=row.token_quota or newest.token_quota,
        gpu_type=row.gpu_type or newest.gpu_type,
        gpu_milli=row.gpu_milli or newest.gpu_milli,
        submitted_at_ms=row.submitted_at_ms,
        since_ms=newest.since_ms,
        queue_position=newest.queue_position,
    )


def _state(admission: TaskRow | None, placement: TaskRow | None) -> tuple[str, bool]:
    """The word for it, and whether that is its end."""
    for row in (placement, admission):
        if row is not None and row.phase == _ENDED:
            return row.outcome or _ENDED, True
    if admission is not None and admission.phase in (QUEUED, STOPPING):
        return admission.phase, False
    if placement is not None:
        return _OF_PLACEMENT.get(placement.phase, placement.phase), False
    return ADMITTED, False


async def view_of(connection: Connection, task_id: UUID) -> TaskView | None:
    """One task, or None while neither service has heard of it."""
    admission, placement = await _ask_both(connection, TaskQuery(task_id=task_id))
    return merged(_first(admission), _first(placement))


async def views(
    connection: Connection, namespace: str | None = None, limit: int = MAX_ROWS
) -> tuple[list[TaskView], bool]:
    """The newest tasks, newest first, and whether there are more."""
    query = TaskQuery(namespace=namespace, limit=limit)
    admission, placement = await _ask_both(connection, query)
    of_placement = {row.run_id: row for row in placement.tasks}
    found = [merged(row, of_placement.get(row.run_id)) for row in admission.tasks]
    return [view for view in found if view is not None], admission.more


async def some_views(connection: Connection, wanted: Iterable[UUID]) -> dict[UUID, TaskView]:
    """The views of these tasks, as far as they are known."""
    ids = list(wanted)
    found = await asyncio.gather(*(view_of(connection, task_id) for task_id in ids))
    return {task_id: view for task_id, view in zip(ids, found, strict=True) if view is not None}


async def find(connection: Connection, text: str) -> TaskView:
    """The task with this id, or the one whose id begins so. Raises NotFoundError."""
    try:
        view = await view_of(connection, UUID(text))
    except ValueError:
        return await _find_by_prefix(connection, text.lower())
    if view is None:
        raise NotFoundError(f"task {text}: not known; see orca get tasks")
    return view


async def _find_by_prefix(connection: Connection, prefix: str) -> TaskView:
    known, more = await views(connection)
    found = [view for view in known if str(view.task_id).startswith(prefix)]
    if len(found) == 1 and prefix:
        return found[0]
    if found:
        raise NotFoundError(f"task {prefix}: {len(found)} tasks begin so; write more of the id")
    among = f" among the newest {MAX_ROWS}" if more else ""
    raise NotFoundError(f"task {prefix}: no id begins so{among}; see orca get tasks")


async def _ask_both(connection: Connection, query: TaskQuery) -> tuple[Tasks, Tasks]:
    admission, placement = await asyncio.gather(
        connection.ask(Tasks, "admission", "tasks", query),
        connection.ask(Tasks, "placement", "tasks", query),
    )
    return admission, placement


def _first(rows: Tasks) -> TaskRow | None:
    return rows.tasks[0] if rows.tasks else None
