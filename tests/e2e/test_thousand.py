"""A thousand tasks at once through three namespaces, quietly and while every service is killed."""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from checks import Ledger, charged_totals, check_log, event_of
from orca_client.connection import Connection
from orca_client.submit import submit_many
from orca_schemas.subjects import Stream
from outcome import all_final, sql_says_the_same
from stack_kit import (
    REPORT_TOKENS,
    RunningStack,
    eventually,
    make_namespace,
    manifest,
    running_stack,
    set_prices,
)

TASKS = 1000
LIMIT_S = 150.0
NAMESPACES = ("team-alpha", "team-beta", "team-gamma")
TOKENS_PER_TASK = 1149
PARTS = ("admission", "placement", "metering", "billing", "node-agent/node-1", "clickhouse")

PROGRAM = REPORT_TOKENS + (
    "report('r1', 'llama-3-8b', {'prompt_tokens': 1020, 'completion_tokens': 129,"
    " 'total_tokens': 1149})\n"
)


def a_thousand() -> list[dict[str, Any]]:
    """Mostly CPU tasks, some on shares of GPUs, every twentieth reporting tokens."""
    documents = []
    for index in range(TASKS):
        resources: dict[str, Any] = {"cpu": "50m", "memory": "16Mi"}
        command = ["/bin/true"]
        if index % 20 == 0:
            resources["tokenQuota"] = 5000
            command = [sys.executable, "-S", "-c", PROGRAM]
        elif index % 5 == 0:
            resources["gpu"] = {
                "type": "A100", "memoryLimit": "4Gi", "computePercent": 10, "sharing": "shared",
            }  # fmt: skip
        namespace = NAMESPACES[index % 3]
        documents.append(manifest(f"task-{index}", namespace, command, resources=resources))
    return documents


async def run_all(stack: RunningStack, chaos: Any = None) -> None:
    """Submit them all at once and wait until every one ended and is charged in full."""
    async with await Connection.open(stack.nats_url, "alice") as alice:
        for namespace in NAMESPACES:
            await make_namespace(
                alice, namespace, {"tokens": 10_000_000, "tasks": 40, "gpu_milli": 2000}
            )
        await set_prices(alice, {"cpu": 40_000, "gpu:A100": 3_000_000,
                                 "tokens:llama-3-8b:input_uncached": 150_000,
                                 "tokens:llama-3-8b:output_text": 600_000})  # fmt: skip
        disturbing = asyncio.create_task(chaos(stack)) if chaos else None
        await submit_many(alice, a_thousand())
        await eventually("all are charged in full", lambda: all_final(stack, TASKS), LIMIT_S)
        if disturbing is not None:
            await disturbing
            await eventually("all are charged in full", lambda: all_final(stack, TASKS), LIMIT_S)


async def verify(stack: RunningStack) -> None:
    """The invariants at every event, no leak, and SQL equal to the fold to the last digit."""
    events = await stack.events()
    ledger: Ledger = check_log(events)
    assert ledger.leaks() == {}
    assert len(ledger.held) == TASKS
    released = [e for e in events[Stream.PLACEMENT] if e.subject.endswith(".Released")]
    assert len(released) == TASKS
    assert {data["outcome"] for _, data in map(event_of, released)} == {"succeeded"}
    charged = charged_totals(events[Stream.BILLING])
    assert sum(charged.tokens.values()) == TASKS // 20 * TOKENS_PER_TASK
    await sql_says_the_same(stack, events)


@pytest.mark.timeout(400)
async def test_a_thousand_at_once_all_end_and_the_sql_equals_the_fold(tmp_path: Path) -> None:
    """Given 1,000 tasks at once, all end, I1 holds at every event, SQL equals the log."""
    with running_stack(tmp_path, ORCA_MAX_STORE_BYTES=str(512 * 2**20)) as stack:
        await run_all(stack)
        await verify(stack)


@pytest.mark.timeout(500)
async def test_killing_every_service_during_the_run_changes_no_total(tmp_path: Path) -> None:
    """Given kill -9 of each part during the run, the same totals."""

    async def kill_each(stack: RunningStack) -> None:
        order = list(PARTS)
        random.Random(7).shuffle(order)
        for part in order:
            await asyncio.sleep(2.0)
            stack.kill(part)

    with running_stack(tmp_path, ORCA_MAX_STORE_BYTES=str(512 * 2**20)) as stack:
        await run_all(stack, kill_each)
        await verify(stack)
