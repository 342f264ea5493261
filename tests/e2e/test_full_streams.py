"""Streams that are full: new work is refused in words, what runs goes on to its charge."""

from __future__ import annotations

import asyncio
import json
import uuid
from pathlib import Path
from typing import Any

import nats
import pytest
from orca_client.connection import Connection
from orca_client.errors import LogFullError
from orca_client.submit import submit, submit_many
from orca_schemas.asks import Status
from orca_schemas.subjects import Stream
from stack_kit import (
    REPORT_TOKENS,
    RunningStack,
    ended,
    eventually,
    make_namespace,
    manifest,
    row,
    set_prices,
)

TEAM = "team-full"
ROOM = 256
"""Bytes left: less than any event of Orca."""
WAITS_FOR_FILE = "import os, time\nwhile not os.path.exists({gate!r}): time.sleep(0.05)\n"


async def update(stack: RunningStack, stream: Stream, max_bytes: int | None) -> int:
    """Set a stream's limit, None: just what it holds; returns the limit it had."""
    nc = await nats.connect(stack.nats_url)
    try:
        asked = await nc.request(f"$JS.API.STREAM.INFO.{stream}", b"", timeout=5)
        info: dict[str, Any] = json.loads(asked.data)
        before: int = info["config"]["max_bytes"]
        limit = max_bytes or info["state"]["bytes"] + ROOM
        config = json.dumps(info["config"] | {"max_bytes": limit}).encode()
        done = await nc.request(f"$JS.API.STREAM.UPDATE.{stream}", config, timeout=5)
        assert "error" not in json.loads(done.data), done.data
        return before
    finally:
        await nc.close()


@pytest.fixture
async def team(alice: Connection) -> Connection:
    """The client, in a namespace with room and prices."""
    limits = {"cpu_milli": 64_000, "memory_mib": 65_536, "tasks": 100, "tokens": 1_000_000}
    await make_namespace(alice, TEAM, limits)
    await set_prices(alice, {"tokens:m:*": 1_000_000})
    return alice


async def test_a_full_client_stream_refuses_work_and_lets_what_runs_be_charged(
    stack: RunningStack, team: Connection, tmp_path: Path
) -> None:
    """Given a running task, when CLIENT is full, then submissions are refused by SDK and command.

    The task reports its usage, ends and is charged; with more room, the next one runs.
    """
    gate = tmp_path / "gate"
    usage = {"prompt_tokens": 1000, "completion_tokens": 0}
    program = (
        REPORT_TOKENS + WAITS_FOR_FILE.format(gate=str(gate)) + f"report('r1', 'm', {usage!r})\n"
    )
    task = manifest("runs", TEAM, ["python3", "-c", program])
    task["spec"]["resources"]["tokenQuota"] = 10_000
    running = await submit(team, task)

    async def runs() -> bool:
        at_placement = await row(team, "placement", running.task_id)
        return at_placement is not None and at_placement.phase == "running"

    await eventually("the task runs", runs)
    had = await update(stack, Stream.CLIENT, None)
    try:
        with pytest.raises(LogFullError, match=r"CLIENT is full .*nothing was stored"):
            await submit(team, manifest("new", TEAM, ["true"]))
        with pytest.raises(LogFullError):
            await submit_many(team, [manifest("new", TEAM, ["true"])] * 3)
        file = tmp_path / "task.json"
        file.write_text(json.dumps(manifest("new", TEAM, ["true"])))
        ran = await asyncio.to_thread(stack.orca, "submit", str(file))
        assert ran.returncode == 3, ran
        assert "CLIENT is full" in ran.stderr
        assert "orca streams apply" in ran.stderr
        gate.touch()
        assert (await ended(team, running.task_id)).outcome == "succeeded"
        await eventually("the task is charged", lambda: charged(stack, running.task_id))
    finally:
        await update(stack, Stream.CLIENT, had)
    after = await submit(team, manifest("new", TEAM, ["true"]))
    assert (await ended(team, after.task_id)).outcome == "succeeded"


def charged(stack: RunningStack, task_id: uuid.UUID) -> bool:
    query = (
        f"SELECT sum(quantity) FROM charges FINAL WHERE task_id = '{task_id}' AND meter = 'tokens'"
    )
    return stack.sql(query) == [(1000,)]


@pytest.mark.parametrize("stream", [Stream.ADMISSION, Stream.PLACEMENT, Stream.METERING])
async def test_a_full_decider_stream_stands_its_service_down_and_loses_nothing(
    stack: RunningStack, team: Connection, stream: Stream
) -> None:
    """Given a decider's stream without room, then its service says so, and goes on once it has."""
    service = stream.lower()
    had = await update(stack, stream, None)
    try:
        tasks = [await submit(team, manifest(f"n{n}", TEAM, ["true"])) for n in range(3)]

        async def says_so() -> bool:
            status = await team.ask(Status, service, "status")
            return f"{stream} is full" in status.reason and not status.active

        await eventually(f"{service} says that it is full", says_so)
        ran = await asyncio.to_thread(stack.orca, "doctor")
        assert ran.returncode == 1
        assert f"{stream} is full" in ran.stdout, ran.stdout
        assert "raise its max_bytes" in ran.stdout
    finally:
        await update(stack, stream, had)
    for task in tasks:
        assert (await ended(team, task.task_id)).outcome == "succeeded"

    async def settled() -> bool:
        status = await team.ask(Status, service, "status")
        return status.active and status.reason == "active"

    await eventually(f"{service} is active again", settled)
    refused = await asyncio.to_thread(stack.orca, "streams", "check")
    assert refused.returncode == 1
    assert "operator may not ask the broker about streams" in refused.stderr
    password = (stack.home / "access" / "service").read_text()
    service_user = ("--nats-user", "service", "--nats-password", password)
    checked = await asyncio.to_thread(stack.orca, *service_user, "streams", "check", "--deep")
    assert checked.returncode == 0, checked.stdout
