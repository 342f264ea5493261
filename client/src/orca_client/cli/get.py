"""``orca get tasks|nodes|gpus|quota|prices``: tables of what is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import typer
from orca_schemas.asks import GpuRow, Gpus, NodeRow, Nodes, PriceRow, Prices, QuotaRow, Quotas

from orca_client.cli import exits, screen, words
from orca_client.cli.context import with_connection
from orca_client.connection import Connection
from orca_client.money import micro_usd
from orca_client.view import TaskView, views

JSON = typer.Option(False, "--json", help="One JSON document instead of a table")
NAMESPACE = typer.Option(None, "--namespace", "-n", help="Of this namespace only")
SHOWN_TASKS = 100


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True, help="Show tasks, nodes, GPUs, quota, prices.")
    group.command("tasks", help="Tasks, newest first, and why they wait.")(_tasks)
    group.command("nodes", help="Nodes and what is free on them.")(_nodes)
    group.command("gpus", help="GPUs and who sits on them.")(_gpus)
    group.command("quota", help="Limits, what is held and what is used.")(_quota)
    group.command("prices", help="The price book.")(_prices)
    app.add_typer(group, name="get")


def _show(
    rows: Sequence[Any],
    columns: Sequence[str],
    cells: Any,
    empty: str,
    state: str | None = None,
    whole: Sequence[str] = (),
) -> int:
    if rows:
        screen.table(columns, [cells(row) for row in rows], state, whole)
    else:
        screen.note(empty)
    return exits.FINE


def _tasks(
    context: typer.Context,
    namespace: str | None = NAMESPACE,
    limit: int = typer.Option(SHOWN_TASKS, min=1, max=1000, help="At most so many"),
    json: bool = JSON,
) -> int:
    async def work(connection: Connection) -> int:
        found, more = await views(connection, namespace, limit)
        if json:
            screen.as_json({"tasks": [view_json(view) for view in found], "more": more})
            return exits.FINE
        code = _show(
            found,
            ("ID", "NAMESPACE", "NAME", "STATE", "NODE", "GPUS", "TOKENS", "AGE", "WHY"),
            _task_cells,
            "no tasks; submit one: orca submit FILE",
            "STATE",
            ("ID", "STATE", "TOKENS", "AGE"),
        )
        if more:
            screen.note(f"the newest {limit}; there are more: --limit")
        return code

    return with_connection(context, work)


def view_json(view: TaskView) -> dict[str, Any]:
    """A task as JSON shows it, reasons with their numbers."""
    plain = asdict(view)
    plain["reasons"] = [reason.model_dump(mode="json") for reason in view.reasons]
    return plain


def _task_cells(view: TaskView) -> list[str]:
    return [
        words.short(view.task_id),
        view.namespace,
        view.name or "?",
        view.state,
        view.node or "-",
        words.gpus(view.gpu_type, view.gpu_milli),
        words.tokens(view.used_tokens, view.token_quota),
        words.ago(view.submitted_at_ms),
        words.why(view.reasons),
    ]


def _nodes(context: typer.Context, json: bool = JSON) -> int:
    async def work(connection: Connection) -> int:
        answer = await connection.ask(Nodes, "placement", "nodes")
        if json:
            screen.as_json(answer)
            return exits.FINE
        columns = ("NODE", "STATUS", "GPUS", "CPU FREE", "MEMORY FREE", "RUNS", "EXECUTOR", "AGENT")
        empty = "no nodes; start one: orca up, or a node agent"
        return _show(answer.nodes, columns, _node_cells, empty, "STATUS")

    return with_connection(context, work)


def _node_cells(row: NodeRow) -> list[str]:
    has = row.inventory
    return [
        row.node,
        row.status,
        words.gpu_kinds(has.gpus),
        f"{words.cores(row.cpu_milli_free)}/{words.cores(has.cpu_milli)}",
        f"{words.memory(row.memory_mib_free)}/{words.memory(has.memory_mib)}",
        str(row.attempts),
        words.executor(has.executor),
        has.agent_version,
    ]


def _gpus(context: typer.Context, json: bool = JSON) -> int:
    async def work(connection: Connection) -> int:
        answer = await connection.ask(Gpus, "placement", "gpus")
        if json:
            screen.as_json(answer)
            return exits.FINE
        columns = ("NODE", "GPU", "TYPE", "FREE", "MEMORY FREE", "TASKS")
        empty = "no GPUs; start a node that has some: orca up --nodes 'node-1=A100:2' simulates"
        return _show(answer.gpus, columns, _gpu_cells, empty)

    return with_connection(context, work)


def _gpu_cells(row: GpuRow) -> list[str]:
    simulated = f" ({words.SIMULATED})" if row.gpu.simulated else ""
    return [
        row.node,
        row.gpu.uuid,
        f"{row.gpu.type}{simulated}",
        f"{row.milli_free / 10:g}%",
        f"{words.memory(row.memory_mib_free)}/{words.memory(row.gpu.memory_mib)}",
        ", ".join(row.tasks) or "-",
    ]


def _quota(context: typer.Context, namespace: str | None = NAMESPACE, json: bool = JSON) -> int:
    async def work(connection: Connection) -> int:
        answer = await connection.ask(Quotas, "admission", "quota")
        rows = [row for row in answer.rows if namespace in (None, row.account)]
        if json:
            screen.as_json(Quotas(rows=tuple(rows)))
            return exits.FINE
        columns = ("NAMESPACE", "DIMENSION", "LIMIT", "HELD", "USED", "FREE", "PERIOD")
        empty = "no quota; give some: orca quota set NAMESPACE gpus=2 tokens=1000000"
        return _show(rows, columns, _quota_cells, empty)

    return with_connection(context, work)


def _quota_cells(row: QuotaRow) -> list[str]:
    free = None if row.limit is None else max(0, row.limit - row.held - row.committed)
    amounts = (row.limit, row.held, row.committed, free)
    shown = [words.amount(row.dimension, one) for one in amounts]
    return [row.account, words.dimension(row.dimension), *shown, row.period]


def _prices(context: typer.Context, json: bool = JSON) -> int:
    async def work(connection: Connection) -> int:
        answer = await connection.ask(Prices, "billing", "prices")
        if json:
            screen.as_json(answer)
            return exits.FINE
        columns = ("SKU", "PRICE", "PER", "FROM (UTC)", "IN FORCE")
        in_force = _in_force(answer.prices)
        return _show(
            answer.prices,
            columns,
            lambda row: [*_price_cells(row), "yes" if row in in_force else ""],
            "no prices; set one: orca price set gpu:A100 3.00",
        )

    return with_connection(context, work)


def _price_cells(row: PriceRow) -> list[str]:
    since = words.clock(row.effective_at_ms)
    return [row.sku, micro_usd(row.price_micro_usd), row.unit, since]


def _in_force(rows: Sequence[PriceRow]) -> list[PriceRow]:
    """The newest version of each sku that has begun."""
    now_ms = time.time() * 1000
    begun = [row for row in rows if row.effective_at_ms <= now_ms]
    return list({row.sku: row for row in sorted(begun, key=lambda r: r.effective_at_ms)}.values())
