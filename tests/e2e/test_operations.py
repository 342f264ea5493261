"""What operators do to a running stack: dead letters, rebuilding ClickHouse."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import Sequence
from typing import Any

import nats
import pytest
from orca_client.connection import Connection
from orca_client.submit import submit_many
from orca_schemas.asks import Rebuild, RebuildQuery
from stack_kit import (
    REPORT_TOKENS,
    RunningStack,
    ended,
    eventually,
    make_namespace,
    manifest,
    set_prices,
)

TEAM = "team-ops"
TASKS = 12
TOTALS = (
    "SELECT sum(amount_usd), sum(quantity) FROM cost_daily",
    "SELECT sum(input_uncached), sum(records) FROM token_usage_hourly",
    "SELECT count() FROM task_events FINAL",
    "SELECT count() FROM run_owners FINAL",
)


async def poison(stack: RunningStack) -> str:
    """A usage message that is none; returns its position once metering has answered it."""
    subject = f"orca.{TEAM}.task.{uuid.uuid4()}.probe.node-1.TokensUsed"
    nc = await nats.connect(stack.nats_url)
    try:
        ack = json.loads((await nc.request(subject, b'{"tokens":"many"}', timeout=5)).data)
    finally:
        await nc.close()
    place = f"#{ack['seq']}"

    async def listed() -> str | None:
        letters = json.loads((await orca(stack, "deadletter", "list", "--json")).stdout)["letters"]
        return next((one["position"] for one in letters if one["position"].endswith(place)), None)

    found: str = await eventually("metering tells of its letter", listed)
    return found


async def orca(stack: RunningStack, *given: str) -> Any:
    return await asyncio.to_thread(stack.orca, *given)


async def test_a_dead_letter_is_listed_shown_redriven_and_dropped(stack: RunningStack) -> None:
    """Given a message that metering cannot read, then each command says what became of it."""
    position = await poison(stack)
    listed = await orca(stack, "deadletter", "list", "--service", "metering")
    assert (listed.returncode, position in listed.stdout) == (0, True), listed
    shown = await orca(stack, "deadletter", "show", position)
    assert shown.returncode == 0
    assert '{"tokens":"many"}' in shown.stdout
    assert re.search(r"error\s+\S", shown.stdout)
    doctor = await orca(stack, "doctor")
    assert re.search(r"warn\s+dead letters\s+1 open", doctor.stdout), doctor.stdout
    redriven = await orca(stack, "deadletter", "redrive", position)
    assert redriven.returncode == 3, redriven
    assert "metering: " in redriven.stderr  # it cannot be read now either, and is a letter again
    dropped = await orca(stack, "deadletter", "drop", position)
    assert (dropped.returncode, dropped.stdout) == (0, f"metering: {position} dropped\n")
    again = await orca(stack, "deadletter", "drop", position)
    assert again.returncode == 2, again
    assert "no open dead letter" in again.stderr
    none = await orca(stack, "deadletter", "list")
    assert (none.returncode, none.stderr) == (0, "orca: no dead letters\n")


@pytest.fixture
async def team(alice: Connection) -> Connection:
    """The client, in a namespace with room and prices."""
    limits = {"cpu_milli": 64_000, "memory_mib": 65_536, "tasks": 100, "tokens": 1_000_000}
    await make_namespace(alice, TEAM, limits)
    await set_prices(alice, {"tokens:m:*": 1_000_000})
    return alice


async def some_tasks(team: Connection) -> Sequence[uuid.UUID]:
    usage = {"prompt_tokens": 100, "completion_tokens": 0}
    program = REPORT_TOKENS + f"report('r', 'm', {usage!r})\n"
    tasks = [manifest(f"n{n}", TEAM, ["python3", "-c", program]) for n in range(TASKS)]
    for task in tasks:
        task["spec"]["resources"]["tokenQuota"] = 1000
    return [one.task_id for one in await submit_many(team, tasks)]


def totals(stack: RunningStack) -> list[Any]:
    return [stack.sql(query)[0] for query in TOTALS]


async def settled(stack: RunningStack, tokens: int) -> list[Any]:
    """The totals, once all tokens are charged and nothing more arrives."""

    async def at_rest() -> list[Any] | None:
        first = await asyncio.to_thread(totals, stack)
        await asyncio.sleep(1.0)
        second = await asyncio.to_thread(totals, stack)
        charged = stack.sql("SELECT sum(quantity) FROM charges FINAL WHERE meter = 'tokens'")
        return second if first == second and charged == [(tokens,)] else None

    found: list[Any] = await eventually("all is charged", at_rest, 60)
    return found


async def test_clickhouse_is_rebuilt_while_tasks_run(stack: RunningStack, team: Connection) -> None:
    """Given rows that were lost and tasks that run on, when rebuilt, then the totals are the log's.

    Metering killed in its rebuild changes nothing: it is asked again.
    """
    for task in await some_tasks(team):
        assert (await ended(team, task)).outcome == "succeeded"
    before = await settled(stack, TASKS * 100)
    stack.sql("DELETE FROM charges WHERE 1")
    stack.sql("DELETE FROM usage_events WHERE 1")
    more = asyncio.create_task(some_tasks(team))
    rebuilt = await orca(stack, "rebuild", "clickhouse", "--yes")
    assert rebuilt.returncode == 0, rebuilt
    assert re.search(r"metering: \d+ events written anew in [\d.]+ s", rebuilt.stdout)
    for task in await more:
        assert (await ended(team, task)).outcome == "succeeded"
    after = await settled(stack, 2 * TASKS * 100)
    assert after[1][0] == 2 * before[1][0]
    await team.ask(Rebuild, "metering", "rebuild", RebuildQuery(start=True))
    stack.kill("metering")
    assert await settled(stack, 2 * TASKS * 100) == after
    again = await orca(stack, "rebuild", "clickhouse", "--yes")
    assert again.returncode == 0, again
    assert await settled(stack, 2 * TASKS * 100) == after
    assert stack.sql("SHOW TABLES LIKE '%_rebuild'") == []
