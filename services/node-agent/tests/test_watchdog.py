"""The watchdog as a process of its own, over real processes, and the agent's side of the lease."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from orca_node_agent import guard as guard_module
from orca_node_agent.boot import boot_clock_s, host_boot_id
from orca_node_agent.executor import AttemptObserved, AttemptPhase, AttemptSpec
from orca_node_agent.guard import Guard
from orca_node_agent.lease import Bodies, Lease, LeaseFiles, Stopped, Watched
from orca_node_agent.process import ProcessExecutor
from orca_node_agent.process_files import AttemptDir
from orca_node_agent.records import AttemptRecord, Phase, Progress
from orca_node_agent.testing import an_attempt
from orca_node_agent.watchdog import POLL_S, Watchdog, watch
from orca_schemas.identifiers import derived_id
from orca_schemas.manifest import OnNodeLoss

WAIT_S = 15.0
TTL_S, GRACE_S = 1.0, 1.0
LATE_S = POLL_S + 1.5
"""A poll, and what a busy machine takes."""
FENCE = "PLACEMENT@1#1"
BODIES = Bodies("process", "node-1", "")
IGNORES_TERM = "trap '' TERM; while :; do sleep 0.05; done"


class Node:
    """A node directory: bodies made by an executor, a lease written by hand, a watchdog."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = LeaseFiles(path)
        self.files.make()
        self.executor = ProcessExecutor(path / "attempts", "/usr/bin:/bin")
        self.watchdogs: list[subprocess.Popen[bytes]] = []

    async def begin(self, number: int, script: str = "exec sleep 300") -> str:
        spec = a_body(number, script)
        await self.executor.start(spec)
        return spec.key

    def lease(self, *keys: str, **changes: Any) -> Lease:
        """Write a lease that was renewed now."""
        named = tuple(Watched(key, FENCE) for key in keys)
        made = Lease(host_boot_id(), boot_clock_s(), TTL_S, GRACE_S, BODIES, named)
        made = replace(made, **changes)
        self.files.write(made)
        return made

    def watch(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "orca_node_agent.watchdog", str(self.path)]
        with self.files.log.open("ab") as log:
            made = subprocess.Popen(command, stderr=log, start_new_session=True)
        self.watchdogs.append(made)
        return made

    async def runs(self, key: str) -> bool:
        found = (await self.executor.observe()).get(key)
        return found is not None and found.phase is AttemptPhase.RUNNING

    async def ended_s(self, key: str) -> float:
        """Wait until it no longer runs; when that was, on the boot clock."""
        await until(lambda: self.over(key))
        return boot_clock_s()

    def over(self, key: str) -> bool:
        seen = AttemptDir(self.path / "attempts" / key).observed(host_boot_id())
        return seen is not None and seen.phase is AttemptPhase.EXITED

    async def code(self, key: str) -> int | None:
        return (await self.executor.observe())[key].exit_code


def a_body(number: int, script: str) -> AttemptSpec:
    run = derived_id(0, "run", number)
    return AttemptSpec(
        key=f"{run}-1", run_id=run, task_id=derived_id(0, "task"), namespace="team-alpha",
        attempt=1, fence=FENCE, image="ignored", command=("sh", "-c", script), env=(),
        cpu_milli=1000, memory_mib=64, gpu_uuids=(),
    )  # fmt: skip


async def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        await asyncio.sleep(0.02)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    """A node whose processes are gone after the test."""
    made = Node(tmp_path)
    yield made
    for watchdog in made.watchdogs:
        watchdog.kill()
        watchdog.wait()
    await made.executor.close()
    for path in (tmp_path / "attempts").iterdir():
        running = AttemptDir(path).running()
        for process in (running.child, running.shim) if running else ():
            if process.alive():
                os.kill(process.pid, signal.SIGKILL)


async def test_a_lapse_stops_what_the_lease_names_and_nothing_else(node: Node) -> None:
    """Given two tasks and one named, when renewals cease, then only that one gets SIGTERM."""
    named, other = await node.begin(1), await node.begin(2)
    lease = node.lease(named)
    node.watch()
    ended_s = await node.ended_s(named)
    assert TTL_S <= ended_s - lease.renewed_s < TTL_S + LATE_S
    assert await node.code(named) == 143
    assert node.files.stopped().keys() == {named}
    assert node.files.stopped()[named].kill_at_s == lease.kill_at_s
    await asyncio.sleep(GRACE_S + POLL_S)
    assert await node.runs(other)


async def test_what_ignores_sigterm_is_killed_when_the_grace_is_over(node: Node) -> None:
    """Given a task that ignores SIGTERM, then SIGKILL comes at lease end and grace, not later."""
    key = await node.begin(1, IGNORES_TERM)
    lease = node.lease(key)
    node.watch()
    ended_s = await node.ended_s(key)
    assert TTL_S + GRACE_S <= ended_s - lease.renewed_s < TTL_S + GRACE_S + LATE_S
    assert await node.code(key) == 137


async def test_a_late_watchdog_gives_no_more_grace(node: Node) -> None:
    """Given a lease long over (the host was suspended), then the kill is due at once."""
    key = await node.begin(1, IGNORES_TERM)
    node.lease(key, renewed_s=boot_clock_s() - 60)
    began_s = boot_clock_s()
    node.watch()
    assert await node.ended_s(key) - began_s < LATE_S


async def test_renewals_in_time_stop_nothing(node: Node) -> None:
    """Given renewals, then the task runs for several leases; without, it is stopped."""
    key = await node.begin(1)
    node.lease(key)
    node.watch()
    for _ in range(8):
        await asyncio.sleep(TTL_S / 3)
        lease = node.lease(key)
    assert await node.runs(key)
    assert node.files.stopped() == {}
    assert await node.ended_s(key) - lease.renewed_s >= TTL_S


async def test_a_pid_used_again_is_not_hit(node: Node) -> None:
    """Given a dead task whose pid another process has, then that process lives on."""
    key = await node.begin(1)
    directory = AttemptDir(node.path / "attempts" / key)
    running = directory.running()
    assert running is not None
    bystander = await asyncio.create_subprocess_exec("sleep", "300", start_new_session=True)
    try:
        boot, *_ = (directory.path / "pid").read_text().splitlines()
        stat = f"{bystander.pid} (x) S " + " ".join(["1"] * 30)
        (directory.path / "pid").write_text(f"{boot}\n{stat}\n{stat}\n")
        node.lease(key)
        node.watch()
        await until(node.files.stopped)
        await asyncio.sleep(GRACE_S + LATE_S)
        assert bystander.returncode is None
    finally:
        os.killpg(running.child.pid, signal.SIGKILL)
        bystander.kill()
        await bystander.wait()


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"boot_id": "another-boot"}, id="a lease of another boot"),
        pytest.param({"attempts": ()}, id="a lease that names nobody"),
        pytest.param({"ttl_s": 3600.0}, id="a lease that lasts"),
    ],
)
async def test_what_is_no_lapse_stops_nothing(node: Node, changes: dict[str, Any]) -> None:
    """Given no lapse of this boot's lease, then nothing is stopped."""
    key = await node.begin(1)
    node.lease(key, **changes)
    node.watch()
    await asyncio.sleep(TTL_S + LATE_S)
    assert await node.runs(key)
    assert node.files.stopped() == {}


async def test_another_fence_is_another_attempt(node: Node) -> None:
    """Given a body of another fence under the name, then it is left alone."""
    key = await node.begin(1)
    node.lease(attempts=(Watched(key, "PLACEMENT@1#2"),))
    node.watch()
    await until(node.files.stopped)
    await asyncio.sleep(GRACE_S + LATE_S)
    assert await node.runs(key)


async def test_what_had_not_begun_never_begins(node: Node, tmp_path: Path) -> None:
    """Given a named attempt without a body, when an agent goes on to begin it, it does not run."""
    spec = a_body(1, f"touch {tmp_path}/ran")
    node.lease(spec.key)
    node.watch()
    await until(lambda: AttemptDir(node.path / "attempts" / spec.key).claimed_by_stop())
    await node.executor.start(spec)
    await asyncio.sleep(0.3)
    assert not (tmp_path / "ran").exists()


async def test_a_damaged_lease_leaves_the_one_before_in_force(node: Node) -> None:
    """Given a lease, when its file is destroyed, then it still ends on time."""
    key = await node.begin(1)
    lease = node.lease(key)
    node.watch()
    await until(node.files.is_locked)
    await asyncio.sleep(POLL_S)
    (node.files.directory / "lease.json").write_text("{")
    assert TTL_S <= await node.ended_s(key) - lease.renewed_s < TTL_S + LATE_S


async def test_a_full_disk_saves_nobody(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given no room for the record of it, then the task is stopped all the same."""

    def full(_: LeaseFiles, __: Stopped) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(LeaseFiles, "stop", full)
    key = await node.begin(1)
    node.lease(key)
    watching = asyncio.create_task(Watchdog(node.path).run())
    await node.ended_s(key)
    assert node.files.stopped() == {}
    watching.cancel()


async def test_there_is_one_watchdog(node: Node) -> None:
    """Given a watchdog, when another is started, then that one leaves at once."""
    node.lease("nobody-1", ttl_s=3600.0)
    first = node.watch()
    await until(node.files.is_locked)
    assert (node.files.directory / "lock").read_text() == f"{first.pid}\n"
    assert node.watch().wait(WAIT_S) == 0
    assert first.poll() is None


async def test_it_leaves_when_the_agent_left_in_order(node: Node) -> None:
    """Given nothing to watch and an agent that closed its lease, then it ends."""
    node.lease(ttl_s=3600.0)
    watchdog = node.watch()
    await until(node.files.is_locked)
    await asyncio.sleep(2 * POLL_S)
    assert watchdog.poll() is None
    node.lease(closed=True)
    assert watchdog.wait(WAIT_S) == 0


async def test_it_leaves_when_there_was_nothing_to_watch_for_long(node: Node) -> None:
    """Given an agent that never comes back, then it ends once all are over, and not before."""
    key = await node.begin(1)
    node.lease(key)
    thread = threading.Thread(target=watch, args=(node.path, 1.0), daemon=True)
    thread.start()
    await node.ended_s(key)
    assert thread.is_alive()
    await until(lambda: not thread.is_alive())
    assert not node.files.is_locked()


async def test_an_attempt_named_as_it_leaves_is_not_missed(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an agent that still found it there, when it is about to end, then it watches on."""
    key = await node.begin(1)
    run, runs = Watchdog.run, itertools.count()

    async def late_name(watchdog: Watchdog) -> None:
        await run(watchdog)
        if next(runs) == 0:
            node.lease(key)

    monkeypatch.setattr(Watchdog, "run", late_name)
    node.lease(closed=True)
    thread = threading.Thread(target=watch, args=(node.path, 1.0), daemon=True)
    thread.start()
    await node.ended_s(key)
    await until(lambda: not thread.is_alive())


# The agent's side


def a_record(number: int = 1, loss: OnNodeLoss = OnNodeLoss.REQUEUE) -> AttemptRecord:
    attempt = an_attempt(number, spec={"on_node_loss": loss})
    key = f"{attempt.run_id}-{attempt.attempt}"
    return AttemptRecord(key, attempt, Progress(Phase.STARTED, None, 0))


def named(files: LeaseFiles) -> list[str]:
    lease = files.read()
    return [one.key for one in lease.attempts] if lease else []


@pytest.fixture
def guard(tmp_path: Path) -> Iterator[Guard]:
    """A guard; its watchdog is gone after the test."""
    made = Guard(tmp_path, BODIES)
    yield made
    if made._watchdog is not None:
        made._watchdog.kill()
        made._watchdog.wait()


def test_nothing_begins_before_the_first_renewal(guard: Guard, tmp_path: Path) -> None:
    """Given no answer of placement, then nothing is admitted and no lease is written."""
    record = a_record()
    assert not guard.admit(record)
    guard.cover({record.key: record}, {})
    assert LeaseFiles(tmp_path).read() is None


async def test_a_start_waits_for_the_watchdog(guard: Guard, tmp_path: Path) -> None:
    """Given a renewal, then the attempt is named, a watchdog comes, and only then it may begin."""
    record = a_record()
    guard.renew(boot_clock_s(), 0)
    assert not guard.admit(record)
    assert named(LeaseFiles(tmp_path)) == [record.key]
    await until(lambda: guard.admit(record))
    assert LeaseFiles(tmp_path).is_locked()


async def test_the_lease_covers_what_may_be_requeued_and_has_not_ended(
    guard: Guard, tmp_path: Path
) -> None:
    """Given attempts of all kinds, then those alone; and what runs without a record stays."""
    files = LeaseFiles(tmp_path)
    one, two, waits = a_record(1), a_record(2), a_record(3, OnNodeLoss.WAIT)
    guard.renew(boot_clock_s(), 0)
    guard.cover({r.key: r for r in (one, two, waits)}, {})
    assert named(files) == sorted([one.key, two.key])
    ended = replace(two, progress=replace(two.progress, phase=Phase.ENDED))
    guard.cover({one.key: one, two.key: ended}, {})
    assert named(files) == [one.key]
    seen = AttemptObserved(
        one.key, one.assigned.run_id, 1, one.fence, AttemptPhase.RUNNING, started_at_ms=0
    )
    guard.cover({}, {one.key: seen})
    assert named(files) == [one.key]
    guard.cover({}, {})
    assert named(files) == []


def test_a_lease_that_lapsed_is_not_mended(
    guard: Guard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an agent that was halted for longer, then what it covered has ended, and stays so."""
    record = a_record()
    renewed_s = boot_clock_s()
    monkeypatch.setattr(guard, "_watched", lambda: True)
    guard.renew(renewed_s, 0)
    assert guard.admit(record)
    monkeypatch.setattr(guard_module, "boot_clock_s", lambda: renewed_s + 31)
    assert not guard.admit(record)
    guard.renew(renewed_s + 30.5, 77)
    assert guard.cover({}, {}) == {
        record.key: Stopped(record.key, record.fence, host_boot_id(), renewed_s + 40, 77)
    }
    assert not guard.admit(record)
    guard.forget(record.key)
    assert guard.cover({}, {}) == {}


def test_the_next_agent_goes_on_with_the_lease(guard: Guard, tmp_path: Path) -> None:
    """Given a lease, then a new guard keeps it as it is until placement answers."""
    guard.renew(boot_clock_s(), 0)
    record = a_record()
    guard._name([Watched(record.key, record.fence)])
    before = LeaseFiles(tmp_path).read()
    guard.close({record.key: record})
    following = Guard(tmp_path, BODIES)
    following._watched = lambda: True  # type: ignore[method-assign]
    following.cover({record.key: record}, {})
    assert LeaseFiles(tmp_path).read() == before
    ended = replace(record, progress=replace(record.progress, phase=Phase.ENDED))
    following.close({record.key: ended})
    closed = LeaseFiles(tmp_path).read()
    assert closed is not None
    assert (closed.closed, closed.attempts) == (True, ())
