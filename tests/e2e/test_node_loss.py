"""A node falls silent: what may be requeued moves, once it is surely gone; all else waits."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from checks import check_log, event_of
from orca_client.connection import Connection
from orca_client.submit import submit
from orca_schemas.limits import LEASE_TTL_MS, LOSS_MARGIN_MS, STOP_GRACE_MS
from orca_schemas.subjects import Stream
from stack_kit import (
    RunningStack,
    ended,
    eventually,
    make_namespace,
    manifest,
    row,
    running_stack,
    set_prices,
)

TEAM = "team-alpha"
LOSS_S = (2 * LEASE_TTL_MS + STOP_GRACE_MS + LOSS_MARGIN_MS) / 1000
"""From the last heartbeat to the requeue: the loss, and the wait after it."""
LEASE_S = LEASE_TTL_MS / 1000
BEAT_S = 2.0
"""How far the last heartbeat lay back when the agent was halted."""
LATE_S = LOSS_MARGIN_MS / 1000
PROGRAM = """
import os, sys, time
path, ends = sys.argv[1:]
def say(what):
    line = f"{what} {os.environ['ORCA_ATTEMPT']} {os.getpid()} {time.monotonic_ns()}\\n"
    os.write(out, line.encode())
out = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
say("start")
while not os.path.exists(ends):
    time.sleep(0.1)
    say("beat")
say("end")
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """Two nodes alike; a halted agent is continued before the stack is stopped."""
    home: Path = tmp_path_factory.mktemp("stack")
    with running_stack(home, "node-1=A100:2;node-2=A100:2") as running:
        yield running


class Lives:
    """What the bodies of one task wrote: (what, attempt, pid, monotonic ns)."""

    def __init__(self, path: Path, name: str) -> None:
        self.file, self.ends = path / f"{name}.txt", path / f"{name}.ends"

    def command(self) -> list[str]:
        return ["python3", "-c", PROGRAM, str(self.file), str(self.ends)]

    def lines(self) -> list[tuple[str, int, int, int]]:
        text = self.file.read_text() if self.file.exists() else ""
        rows = [line.split() for line in text.splitlines()]
        return [(what, int(attempt), int(pid), int(ns)) for what, attempt, pid, ns in rows]

    def spans(self) -> dict[tuple[int, int], tuple[int, int]]:
        """First and last sign of each body, by attempt and pid."""
        found: dict[tuple[int, int], list[int]] = defaultdict(list)
        for _, attempt, pid, ns in self.lines():
            found[attempt, pid].append(ns)
        return {body: (times[0], times[-1]) for body, times in found.items()}


@pytest.mark.timeout(300)
async def test_a_silent_node(stack: RunningStack, alice: Connection, tmp_path: Path) -> None:
    """Given two tasks on a node whose agent is halted, then one moves, the other waits for it.

    The moving task's bodies never live at the same time, and there are exactly two. When the
    agent goes on, it reports the first one's end and its usage, and the waiting task ends there.
    """
    moving, waiting = Lives(tmp_path, "moving"), Lives(tmp_path, "waiting")
    moves, waits = await begin(alice, moving, waiting)
    first = await running_on(alice, moves)
    assert await running_on(alice, waits) == first
    agent = stack.pid(f"node-agent/{first}")
    assert agent is not None
    os.kill(agent, signal.SIGSTOP)
    halted_s = time.monotonic()
    try:
        await eventually("it starts anew", lambda: len(moving.spans()) == 2, LOSS_S + 30)
        moved_s = time.monotonic()
        assert await running_on(alice, moves) not in (None, first)
        assert (await row(alice, "placement", waits)).phase == "running"  # type: ignore[union-attr]
    finally:
        os.kill(agent, signal.SIGCONT)
    (one, two) = sorted(moving.spans())
    assert (one[0], two[0]) == (1, 2)
    stopped_s = moving.spans()[one][1] / 1e9
    assert LEASE_S - LATE_S <= stopped_s - halted_s <= LEASE_S + LATE_S
    assert LOSS_S - BEAT_S <= moved_s - halted_s <= LOSS_S + LATE_S
    await eventually("its end is reported", lambda: late_end(stack, moves))
    for lives, task_id in ((waiting, waits), (moving, moves)):
        lives.ends.touch()
        assert (await ended(alice, task_id)).outcome == "succeeded"
    print(
        f"\nstopped {stopped_s - halted_s:.1f} s, moved {moved_s - halted_s:.1f} s after the halt"
    )
    assert sorted(attempt for attempt, _ in moving.spans()) == [1, 2]
    assert moving.spans()[one][1] < moving.spans()[two][0]
    assert list(waiting.spans()) == [(1, waiting.lines()[0][2])]
    await eventually("all is charged", lambda: in_order(stack))
    placed = [data for name, data in await said(stack, Stream.PLACEMENT) if name == "Placed"]
    assert sorted((data["task_id"], data["attempt"]) for data in placed) == sorted(
        [(str(moves), 1), (str(moves), 2), (str(waits), 1)]
    )


@pytest.mark.timeout(300)
async def test_a_node_back_before_its_loss_is_waited_out(
    stack: RunningStack, alice: Connection, tmp_path: Path
) -> None:
    """Given an agent halted for longer than the lease only, then its report requeues the task."""
    moving, waiting = Lives(tmp_path, "moving"), Lives(tmp_path, "waiting")
    moves, waits = await begin(alice, moving, waiting)
    agent = stack.pid(f"node-agent/{await running_on(alice, moves)}")
    assert agent is not None
    os.kill(agent, signal.SIGSTOP)
    try:
        await asyncio.sleep(LEASE_S + LATE_S)
        (one,) = moving.spans()
    finally:
        os.kill(agent, signal.SIGCONT)
    await eventually("it starts anew", lambda: len(moving.spans()) == 2)
    for lives, task_id in ((waiting, waits), (moving, moves)):
        lives.ends.touch()
        assert (await ended(alice, task_id)).outcome == "succeeded"
    (two,) = moving.spans().keys() - {one}
    assert two[0] == 2
    assert moving.spans()[one][1] < moving.spans()[two][0]
    assert list(waiting.spans()) == [(1, waiting.lines()[0][2])]
    await eventually("all is charged", lambda: in_order(stack))


async def begin(alice: Connection, moving: Lives, waiting: Lives) -> tuple[UUID, UUID]:
    """Submit both; the second once the first runs, so that both come to the same node."""
    await make_namespace(alice, TEAM, {"tasks": 10, "gpu_milli": 4000})
    await set_prices(alice, {"cpu": 40_000, "gpu:A100": 3_000_000})
    resources = {"cpu": "100m", "memory": "64Mi", "gpu": {"type": "A100", "count": 1}}
    retries = {"onNodeLoss": "requeue"}
    first = manifest("moves", TEAM, moving.command(), resources=resources, retries=retries)
    moves = await submit(alice, first)
    await eventually("it runs", moving.lines)
    second = manifest("waits", TEAM, waiting.command(), resources=resources)
    waits = await submit(alice, second)
    await eventually("it runs", waiting.lines)
    return moves.task_id, waits.task_id


async def running_on(alice: Connection, task_id: UUID) -> str:
    """The node that runs it."""

    async def probe() -> str | None:
        found = await row(alice, "placement", task_id)
        return found.node if found is not None and found.phase == "running" else None

    node: str = await eventually("it is known to run", probe)
    return node


async def said(stack: RunningStack, stream: Stream) -> list[tuple[str, dict[str, Any]]]:
    """Every event of a stream: name and data, with the task's id."""
    found = []
    for stored in (await stack.events(stream))[stream]:
        name, data = event_of(stored)
        found.append((name, data | {"task_id": stored.subject.split(".")[3]}))
    return found


async def late_end(stack: RunningStack, task_id: UUID) -> bool:
    """Whether attempt 1's end came: node_lost, by the watchdog's SIGTERM; placement notes it."""
    ends = [data for name, data in await said(stack, Stream.NODE) if name == "TaskFinished"]
    assert [data["task_id"] for data in ends] in ([], [str(task_id)])
    for data in ends:
        assert (data["attempt"], data["outcome"], data["exit_code"]) == (1, "node_lost", 143)
    return bool(ends)


async def in_order(stack: RunningStack) -> bool:
    """Whether the invariants hold, all usage charged: the lost attempt's too."""
    events = await stack.events()
    with contextlib.suppress(AssertionError):
        return not check_log(events).leaks()
    return False
