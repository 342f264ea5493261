"""``orca describe task``: everything about one task, from its submission to its cost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import typer
from orca_schemas.asks import CostRow, History, HistoryEvent, TaskQuery
from orca_schemas.positions import Position
from orca_schemas.subjects import parse_subject
from orca_schemas.values import Reason, ReasonCode

from orca_client.cli import exits, screen, words
from orca_client.cli.context import with_connection
from orca_client.cli.get import JSON, view_json
from orca_client.connection import Connection
from orca_client.errors import UnavailableError
from orca_client.follow import cost_of
from orca_client.money import usd
from orca_client.view import TaskView, find

ORDER = ("CLIENT", "ADMIN", "ADMISSION", "PLACEMENT", "NODE", "USAGE", "METERING", "BILLING")
_UNBLOCKS = {
    "quota": "when others of the namespace end or the limit is raised: orca quota set",
    "capacity": "when a task on such a node ends, or a node joins",
    ReasonCode.NO_NODES: "when a node joins: orca get nodes",
    ReasonCode.GPU_TYPE_ABSENT: "when a node with such GPUs joins: orca get gpus",
    ReasonCode.PRIORITY: "when the tasks before it are placed",
    ReasonCode.NODE_HEALTH: "when the node is well again: orca doctor",
    ReasonCode.STOP_UNCONFIRMED: "when the node confirms the stop: orca doctor",
    ReasonCode.UNKNOWN_NAMESPACE: "an operator makes the namespace: orca quota set",
    ReasonCode.NO_QUOTA: "an operator gives the namespace a quota: orca quota set",
}


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True, help="Tell everything about one thing.")
    group.command("task", help="A task: why it waits, every event of its life, its cost.")(_task)
    app.add_typer(group, name="describe")


def _task(
    context: typer.Context,
    task: str = typer.Argument(..., help="The task's id, or how it begins"),
    json: bool = JSON,
) -> int:
    async def work(connection: Connection) -> int:
        view = await find(connection, task)
        history, cost = await asyncio.gather(
            connection.ask(History, "admission", "history", TaskQuery(task_id=view.task_id)),
            _cost(connection, view),
        )
        events = in_order(history.events)
        if json:
            screen.as_json(_as_json(view, events, cost))
        else:
            _show(view, events, cost)
        return exits.FINE

    return with_connection(context, work)


async def _cost(connection: Connection, view: TaskView) -> CostRow | str | None:
    try:
        return await cost_of(connection, view.task_id)
    except UnavailableError as error:
        return str(error)


def in_order(events: Sequence[HistoryEvent]) -> list[HistoryEvent]:
    """Events by time; at the same millisecond in the order in which streams cause each other."""

    def key(event: HistoryEvent) -> tuple[int, int, int]:
        position = Position.parse(event.position)
        return event.time_ms, ORDER.index(position.stream), position.sequence

    return sorted(events, key=key)


def trace_of(events: Sequence[HistoryEvent]) -> str | None:
    """The trace id of the newest run; None where no event carries one."""
    traced = (event.traceparent for event in reversed(events) if event.traceparent)
    parent = next(traced, None)
    return parent.split("-")[1] if parent else None


def _as_json(
    view: TaskView, events: Sequence[HistoryEvent], cost: CostRow | str | None
) -> dict[str, Any]:
    return {
        "task": view_json(view),
        "cost": cost.model_dump(mode="json") if isinstance(cost, CostRow) else cost,
        "trace_id": trace_of(events),
        "events": [event.model_dump(mode="json") for event in events],
    }


def _show(view: TaskView, events: Sequence[HistoryEvent], cost: CostRow | str | None) -> None:
    screen.fields(
        [
            ("task", words.label(view)),
            ("id", str(view.task_id)),
            ("run", str(view.run_id)),
            ("user", view.user or "?"),
            ("state", _state_words(view)),
            ("node", view.node or "-"),
            ("attempt", str(view.attempt or "-")),
            ("gpus", words.gpus(view.gpu_type, view.gpu_milli)),
            ("tokens", words.tokens(view.used_tokens, view.token_quota)),
            ("submitted", f"{words.clock(view.submitted_at_ms)} UTC"),
            ("cost", cost_words(cost)),
            ("trace", trace_of(events) or "-"),
        ]
    )
    _show_reasons(view)
    _show_end(view, events)
    screen.line()
    columns = ("TIME (UTC)", "POSITION", "EVENT", "BY", "CAUSE")
    screen.table(columns, [_event_cells(event) for event in events])


def _state_words(view: TaskView) -> str:
    place = f", number {view.queue_position} in the queue" if view.queue_position else ""
    return f"{view.state} since {words.clock(view.since_ms)} UTC{place}"


def cost_words(cost: CostRow | str | None) -> str:
    """The cost so far, or why it is not known."""
    if cost is None:
        return "nothing charged so far"
    if isinstance(cost, str):
        return f"not known: {cost}"
    final = "final" if cost.final else "so far"
    unpriced = f"; {words.unpriced(cost.unpriced)}" if cost.unpriced else ""
    return f"{usd(cost.total_pico_usd)} ({final}{unpriced})"


def _show_reasons(view: TaskView) -> None:
    if not view.reasons:
        return
    screen.line()
    screen.line("why it ended so:" if view.ended else "why it waits:")
    for reason in view.reasons:
        screen.line(f"  {reason.code}: {reason.message}")
        numbers = _numbers(reason)
        if numbers:
            screen.line(f"    {numbers}")
        if not view.ended:
            screen.line(f"    goes on {unblocks(reason)}")


def _show_end(view: TaskView, events: Sequence[HistoryEvent]) -> None:
    """What the node said of the end, where it is not the good one and no reason tells it."""
    ends = [event.data for event in events if event.event == "TaskFinished"]
    if view.succeeded or view.reasons or not view.ended or not ends:
        return
    message = ends[-1].get("message") or "the node gave no reason"
    screen.line()
    screen.line("why it ended so:")
    screen.line(f"  {view.state}: {message}")
    screen.line(f"    what it wrote: orca logs {words.short(view.task_id)}")


def _numbers(reason: Reason) -> str:
    named = (("asked", reason.asked), ("available", reason.available), ("limit", reason.limit))
    return ", ".join(f"{name} {value:,}" for name, value in named if value is not None)


def unblocks(reason: Reason) -> str:
    """What would let the task go on."""
    family = reason.code.value.partition("_")[0]
    known = _UNBLOCKS.get(reason.code) or _UNBLOCKS.get(family)
    return known or "when the reason above is gone"


def _event_cells(event: HistoryEvent) -> list[str]:
    subject = parse_subject(event.subject)
    by = subject.role.value if subject.party == "-" else f"{subject.role.value} {subject.party}"
    return [
        words.clock(event.time_ms),
        short_position(event.position),
        f"{event.event}{_detail(event)}",
        by,
        short_position(event.cause) if event.cause else "-",
    ]


def _detail(event: HistoryEvent) -> str:
    """The one field that tells an event from its like."""
    data = event.data
    for name in ("outcome", "node", "part", "used_tokens"):
        if data.get(name) is not None:
            return f" ({name.removesuffix('_tokens')} {data[name]})"
    fact = data.get("fact")
    return f" ({fact['kind']})" if isinstance(fact, dict) and "kind" in fact else ""


def short_position(text: str) -> str:
    """``STREAM#sequence``: the epoch is the same for all of a stream's life."""
    position = Position.parse(text)
    return f"{position.stream}#{position.sequence}"
