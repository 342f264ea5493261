"""Carrying out a plan on an executor that is slow, away, or stuck."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from orca_node_agent import steward as steward_module
from orca_node_agent.boot import boot_clock_s, host_boot_id
from orca_node_agent.endings import LAPSED
from orca_node_agent.executor import (
    AttemptObserved,
    AttemptPhase,
    AttemptSpec,
    ExecutorUnavailableError,
    LogChunk,
)
from orca_node_agent.guard import Guard
from orca_node_agent.identity import Identity
from orca_node_agent.lease import Bodies, LeaseFiles, Stopped
from orca_node_agent.ledger import Ledger
from orca_node_agent.records import Phase, key_of
from orca_node_agent.spool import Spool, SpoolLimits
from orca_node_agent.spool_thread import SpoolThread
from orca_node_agent.steward import GpuState, Steward
from orca_node_agent.testing import an_attempt
from orca_runtime.clock import SystemClock
from orca_schemas.asks import Desired, DesiredAttempt, StopAsked
from orca_schemas.codec import decode
from orca_schemas.events.node import TaskFinished, TaskStarted
from orca_schemas.manifest import OnNodeLoss
from orca_schemas.subjects import parse_subject
from orca_schemas.values import Outcome

T0 = 1_764_547_200_000
CANCEL = StopAsked(outcome=Outcome.CANCELLED, message="no longer wanted", grace_ms=5_000)
A, B = an_attempt(1), an_attempt(2)
REQUEUED = an_attempt(3, spec={"on_node_loss": OnNodeLoss.REQUEUE})


class SlowExecutor:
    """Bodies in memory. ``pulling``: start never comes back. ``away``: no call does anything."""

    name = "slow"

    def __init__(self) -> None:
        self.bodies: dict[str, AttemptObserved] = {}
        self.calls: list[tuple[str, str]] = []
        self.pulling = False
        self.away = False
        self.stuck: set[str] = set()

    async def start(self, spec: AttemptSpec) -> None:
        self._call("start", spec.key)
        if self.pulling:
            await asyncio.Event().wait()
        self.bodies[spec.key] = AttemptObserved(
            spec.key, spec.run_id, spec.attempt, spec.fence, AttemptPhase.RUNNING, T0
        )

    async def observe(self) -> Mapping[str, AttemptObserved]:
        self._call("observe", "")
        return dict(self.bodies)

    async def stop(self, key: str, grace_s: float) -> None:
        self._call("stop", key)
        if key in self.stuck:
            raise ExecutorUnavailableError(f"{key}: the driver holds it")
        seen = self.bodies.get(key)
        if seen is not None:
            self.bodies[key] = AttemptObserved(
                key, seen.run_id, seen.attempt, seen.fence, AttemptPhase.EXITED, T0,
                finished_at_ms=2 * T0, exit_code=143,
            )  # fmt: skip

    async def read_log(self, key: str, offset: int, limit_bytes: int) -> LogChunk:
        return LogChunk(offset, b"")

    async def remove(self, key: str) -> None:
        self._call("remove", key)
        if key in self.stuck:
            raise RuntimeError(f"{key} is not removed: device busy")
        self.bodies.pop(key, None)

    async def close(self) -> None:
        return None

    def _call(self, name: str, key: str) -> None:
        if self.away:
            raise ExecutorUnavailableError("away")
        self.calls.append((name, key))


class Host:
    """A steward over a slow executor, with its spool."""

    def __init__(self, path: Path) -> None:
        self.executor = SlowExecutor()
        self.spool = Spool(path / "spool.db", SpoolLimits(), T0)
        self.thread = SpoolThread()
        self.identity = Identity(path)
        self.woken = 0
        self.steward = Steward(
            self.executor,
            self.spool,
            Ledger(self.spool, "node-1"),
            self.thread,
            self.identity,
            Guard(path, Bodies("slow", "node-1", "")),
            SystemClock(),
            usage_url=lambda: "http://127.0.0.1:1/v1/usage",
            gpus=lambda: GpuState(frozenset(), True),
            wake=self._wake,
        )

    def _wake(self) -> None:
        self.woken += 1

    async def round(self, *attempts: DesiredAttempt) -> None:
        await self.steward.round(Desired(sequence=1, known=True, attempts=attempts))
        await asyncio.sleep(0.02)

    def said(self, event: type[Any]) -> list[Any]:
        found = [
            decode(parse_subject(row.message.subject), row.message.body).data
            for row in self.spool.waiting(100)
        ]
        return [data for data in found if isinstance(data, event)]

    def phase(self, attempt: DesiredAttempt) -> Phase | None:
        record = self.spool.records.get(key_of(attempt))
        return record.progress.phase if record else None


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    """A host without bodies."""
    made = Host(tmp_path)
    yield made
    await made.steward.close()
    made.thread.close()
    made.spool.close()
    made.identity.close()


def with_stop(attempt: DesiredAttempt) -> DesiredAttempt:
    return attempt.model_copy(update={"stop": CANCEL})


async def test_a_slow_start_holds_up_nobody(host: Host) -> None:
    """Given a pull that takes for ever, when another task comes, then it runs."""
    host.executor.pulling = True
    await host.round(A)
    host.executor.pulling = False
    await host.round(A, B)
    await host.round(A, B)
    assert (host.phase(A), host.phase(B)) == (Phase.ACCEPTED, Phase.STARTED)
    assert host.executor.calls.count(("start", key_of(A))) == 1
    assert host.woken == 1


async def test_a_stop_ends_a_start_under_way(host: Host) -> None:
    """Given a pull, when a stop is ordered, then it never ran, with the order's outcome."""
    host.executor.pulling = True
    await host.round(A)
    await host.round(with_stop(A))
    await host.round(with_stop(A))
    (finished,) = host.said(TaskFinished)
    assert (finished.outcome, finished.started_at_ms) == (Outcome.CANCELLED, None)
    assert host.said(TaskStarted) == []


async def test_an_engine_that_is_away_is_asked_again(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given no engine, then nothing is concluded; when it is back, the start is made up for."""
    monkeypatch.setattr(steward_module, "START_RETRY_S", 0.01)
    observe = host.executor.observe

    async def nothing() -> Mapping[str, AttemptObserved]:
        return {}

    host.executor.observe = nothing  # type: ignore[method-assign]
    host.executor.away = True
    await host.round(A)
    assert host.phase(A) is Phase.ACCEPTED
    host.executor.observe = observe  # type: ignore[method-assign]
    await host.round(A)
    assert host.said(TaskFinished) == []
    host.executor.away = False
    await host.round(A)
    await host.round(A)
    assert host.phase(A) is Phase.STARTED


async def test_while_nothing_is_observed_nothing_is_lost(host: Host) -> None:
    """Given a running task, when the engine is away, then it is not reported as gone."""
    await host.round(A)
    await host.round(A)
    host.executor.away = True
    await host.round(A)
    await host.round()
    assert host.said(TaskFinished) == []


async def test_one_stuck_body_does_not_hold_up_the_others(host: Host) -> None:
    """Given a body that cannot be stopped, then its slot stays taken and the other one ends."""
    await host.round(A, B)
    await host.round(A, B)
    host.executor.stuck = {key_of(A)}
    for _ in range(2):
        await host.round(with_stop(A), with_stop(B))
    assert [one.run_id for one in host.said(TaskFinished)] == [B.run_id]
    assert host.phase(A) is Phase.STARTED


async def test_remains_that_cannot_be_removed_are_tried_again(host: Host) -> None:
    """Given remains that a driver holds, then they are remembered until they are gone."""
    await host.round(A)
    await host.round(A)
    await host.round(with_stop(A))
    await host.round(with_stop(A))
    await host.thread(host.steward._ledger.published_log, key_of(A), 0, True)
    host.executor.stuck = {key_of(A)}
    await host.round()
    assert host.phase(A) is Phase.ENDED
    host.executor.stuck = set()
    await host.round()
    assert host.phase(A) is None
    assert host.executor.bodies == {}


async def test_a_body_without_a_record_is_adopted(host: Host, tmp_path: Path) -> None:
    """Given a lost spool, when placement lists what runs, then it is taken on, not run again."""
    key = key_of(A)
    host.executor.bodies[key] = AttemptObserved(
        key, A.run_id, A.attempt, A.fence, AttemptPhase.RUNNING, T0
    )
    await host.round(A)
    await host.round(A)
    assert host.phase(A) is Phase.STARTED
    assert ("start", key) not in host.executor.calls


@pytest.fixture
def lapse(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], LeaseFiles]:
    """Starts are let through; call it to have the lease of REQUEUED lapse at T0."""
    monkeypatch.setattr(host.steward._guard, "admit", lambda _: True)
    key, files = key_of(REQUEUED), LeaseFiles(tmp_path)

    def lapsed() -> LeaseFiles:
        files.stop(Stopped(key, REQUEUED.fence, host_boot_id(), boot_clock_s() + 9, T0))
        return files

    return lapsed


async def test_a_lapse_ends_an_attempt_as_lost_and_for_good(
    host: Host, lapse: Callable[[], LeaseFiles]
) -> None:
    """Given a record of the watchdog's, then it ends as node_lost and is not begun again."""
    await host.round(REQUEUED)
    await host.round(REQUEUED)
    files = lapse()
    for _ in range(3):
        await host.round(REQUEUED)
    (finished,) = host.said(TaskFinished)
    assert (finished.outcome, finished.message) == (Outcome.NODE_LOST, LAPSED)
    assert host.executor.calls.count(("start", key_of(REQUEUED))) == 1
    await host.thread(host.steward._ledger.published_log, key_of(REQUEUED), 0, True)
    await host.round()
    assert host.phase(REQUEUED) is None
    assert files.stopped() == {}


async def test_an_end_before_the_lapse_is_the_tasks_own(
    host: Host, lapse: Callable[[], LeaseFiles]
) -> None:
    """Given a task that had failed by then, then it failed."""
    await host.round(REQUEUED)
    await host.round(REQUEUED)
    lapse()
    key = key_of(REQUEUED)
    host.executor.bodies[key] = replace(
        host.executor.bodies[key], phase=AttemptPhase.EXITED, finished_at_ms=T0 - 1000, exit_code=3
    )
    await host.round(REQUEUED)
    (finished,) = host.said(TaskFinished)
    assert (finished.outcome, finished.exit_code) == (Outcome.FAILED, 3)


async def test_what_a_lapse_ended_before_it_began_never_begins(
    host: Host, lapse: Callable[[], LeaseFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a start that waits to be let through, when the lease lapses, then it never ran."""
    monkeypatch.setattr(host.steward._guard, "admit", lambda _: False)
    await host.round(REQUEUED)
    files = lapse()
    await host.round(REQUEUED)
    await host.round(REQUEUED)
    (finished,) = host.said(TaskFinished)
    assert (finished.outcome, finished.started_at_ms) == (Outcome.NODE_LOST, None)
    assert ("start", key_of(REQUEUED)) not in host.executor.calls
    assert files.stopped().keys() == {key_of(REQUEUED)}


async def test_a_start_decided_long_ago_is_not_made(
    host: Host, lapse: Callable[[], LeaseFiles]
) -> None:
    """Given an agent halted between decision and start, then it decides anew."""
    await host.round(REQUEUED, A)
    long_ago_s = boot_clock_s() - steward_module.ADMIT_S
    assert not await host.steward._admitted(key_of(REQUEUED), long_ago_s)
    assert await host.steward._admitted(key_of(REQUEUED), boot_clock_s())
    assert await host.steward._admitted(key_of(A), long_ago_s)


async def test_records_of_attempts_that_nobody_knows_are_dropped(
    host: Host, lapse: Callable[[], LeaseFiles]
) -> None:
    """Given a lost spool, then the record stays while placement may list it, and then goes."""
    files = lapse()
    await host.steward.round(None)
    assert files.stopped() != {}
    await host.round()
    assert files.stopped() == {}
