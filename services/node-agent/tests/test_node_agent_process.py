"""The agent as a process of its own, on a real broker: killed, restarted, cut off."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg
from orca_node_agent.boot import boot_clock_s, host_boot_id
from orca_node_agent.executor import AttemptPhase
from orca_node_agent.lease import LeaseFiles
from orca_node_agent.process_files import AttemptDir
from orca_node_agent.records import key_of
from orca_node_agent.settings import Settings
from orca_node_agent.testing import EPOCH, a_slot, an_attempt
from orca_runtime.jetstream import JetStreamLog
from orca_runtime.recorded import recorded
from orca_runtime.streams import apply
from orca_runtime.testing_nats import NatsServer, running_nats
from orca_schemas.asks import Desired, DesiredAttempt, Reply
from orca_schemas.events.node import NodeJoined, TaskFinished, TaskStarted
from orca_schemas.events.usage import CpuUsed, GpuUsed
from orca_schemas.manifest import OnNodeLoss
from orca_schemas.positions import Position
from orca_schemas.subjects import ask_subject, hint_subject, telemetry_subject
from orca_schemas.values import Outcome

NODE = "node-1"
WAIT_S = 20.0
TTL_S = 6
LATE_S = 3.0
"""A poll of the watchdog, the age of the last renewal, and what a busy machine takes."""
STORE_BYTES = 256 * 1024 * 1024


class Placement:
    """Answers for placement, listens to the node, and reads what the streams hold."""

    def __init__(self, log: JetStreamLog) -> None:
        self._log = log
        self._sequence = 0
        self._attempts: tuple[DesiredAttempt, ...] = ()
        self.silent = False
        self.beats: list[dict[str, Any]] = []

    async def serve(self) -> None:
        nc = self._log.nc
        await nc.subscribe(ask_subject("_cluster", NODE, "placement", "desired"), cb=self._answer)
        await nc.subscribe(telemetry_subject("*", "heartbeat"), cb=self._hear)

    async def want(self, *attempts: DesiredAttempt) -> None:
        self._sequence, self._attempts = self._sequence + 1, attempts
        await self._log.nc.publish(hint_subject(NODE), b"")

    async def said(self, event: type[Any]) -> list[Any]:
        """Every event of one kind in NODE and USAGE, in order."""
        found = []
        for stream in ("NODE", "USAGE"):
            state = await self._log.state(stream)
            for sequence in range(1, state.last_sequence + 1):
                stored = await self._log.get(stream, sequence)
                assert stored is not None
                found.append(recorded(stored).data)
        return [data for data in found if isinstance(data, event)]

    async def printed(self) -> str:
        """All output in LOGS, by offset."""
        state, chunks = await self._log.state("LOGS"), {}
        for sequence in range(1, state.last_sequence + 1):
            stored = await self._log.get("LOGS", sequence)
            assert stored is not None
            chunk = json.loads(stored.body)
            chunks[chunk["offset"]] = chunk["text"]
        return "".join(chunks[offset] for offset in sorted(chunks))

    async def _answer(self, message: Msg) -> None:
        if self.silent:
            return
        desired = Desired(sequence=self._sequence, known=True, attempts=self._attempts)
        position = str(Position("PLACEMENT", EPOCH, self._sequence))
        reply = Reply(ok=True, position=position, data=desired.model_dump(mode="json"))
        await message.respond(reply.model_dump_json().encode())

    async def _hear(self, message: Msg) -> None:
        self.beats.append(json.loads(message.data))


class AgentProcess:
    """``python -m orca_node_agent`` with settings from the environment."""

    def __init__(self, data_dir: Path, url: str) -> None:
        self._environment = {
            "PATH": os.environ["PATH"],
            "ORCA_NATS_URL": url,
            "ORCA_DATA_DIR": str(data_dir),
            "ORCA_NODE": NODE,
            "ORCA_SIMULATED_GPUS": "A100:1",
            "ORCA_LEASE_TTL_MS": str(TTL_S * 1000),
        }
        self.root = data_dir / "nodes" / NODE
        self._log = data_dir / "agent.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "orca_node_agent"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, env=self._environment, stderr=log)

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def end(self, how: signal.Signals) -> int:
        """Signal it and wait; its exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(how)
        return process.wait(WAIT_S)

    def watchdog(self) -> int | None:
        """Its process id, None while there is none."""
        files = LeaseFiles(self.root)
        if not files.directory.exists() or not files.is_locked():
            return None
        text = (files.directory / "lock").read_text()
        return int(text) if text else None

    def end_watchdog(self) -> None:
        found = self.watchdog()
        if found is not None:
            os.kill(found, signal.SIGKILL)


@pytest.fixture
def server() -> Iterator[NatsServer]:
    """A broker."""
    with running_nats() as made:
        yield made


@pytest.fixture
async def placement(server: NatsServer) -> AsyncIterator[Placement]:
    """The streams declared, and an answering placement."""
    log = await JetStreamLog.connect(server.url, name="test")
    await apply(log.nc, STORE_BYTES)
    made = Placement(log)
    await made.serve()
    yield made
    await log.close()


@pytest.fixture
def agent(server: NatsServer, tmp_path: Path) -> Iterator[AgentProcess]:
    """An agent that is not started yet; its processes are gone after the test."""
    made = AgentProcess(tmp_path, server.url)
    yield made
    made.end(signal.SIGKILL)
    made.end_watchdog()
    for path in (made.root / "attempts").glob("*"):
        found = AttemptDir(path).running()
        if found is not None and found.child.alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(found.child.pid, signal.SIGKILL)


async def until(condition: Callable[[], Any]) -> Any:
    """Wait until it is so; what it gave."""
    deadline = time.monotonic() + WAIT_S
    while True:
        found = condition()
        found = await found if asyncio.iscoroutine(found) else found
        if found:
            return found
        assert time.monotonic() < deadline, "not in time"
        await asyncio.sleep(0.05)


def a_task(path: Path, slot: str) -> DesiredAttempt:
    script = f"echo one; while [ ! -e {path}/go ]; do sleep 0.05; done; echo two; exit 3"
    spec = {"command": ("sh", "-c", script), "report_interval_ms": 300}
    return an_attempt(spec=spec, slots=(a_slot(slot),))


async def test_kill_9_and_a_broker_restart_lose_and_repeat_nothing(
    placement: Placement, server: NatsServer, agent: AgentProcess, tmp_path: Path
) -> None:
    """Given a task, when agent and broker are killed under it, then its story is told once."""
    agent.start()
    (joined,) = await until(lambda: placement.said(NodeJoined))
    attempt = a_task(tmp_path, joined.inventory.gpus[0].uuid)
    await placement.want(attempt)
    await until(lambda: placement.said(TaskStarted))
    await until(lambda: placement.said(GpuUsed))
    agent.end(signal.SIGKILL)
    agent.start()
    await until(lambda: _two(placement))
    server.kill()
    await asyncio.sleep(1.0)
    (tmp_path / "go").touch()
    await asyncio.sleep(1.0)
    server.start()
    (finished,) = await until(lambda: placement.said(TaskFinished))
    await until(lambda: _has(placement, "two"))
    assert (finished.outcome, finished.exit_code) == (Outcome.FAILED, 3)
    (started,) = await placement.said(TaskStarted)
    lived_ms = finished.finished_at_ms - started.started_at_ms
    for kind in (GpuUsed, CpuUsed):
        records = {record.number: record for record in await placement.said(kind)}
        assert sorted(records) == list(range(1, len(records) + 1))
        assert sum(record.duration_ms for record in records.values()) == lived_ms
    assert await placement.printed() == "one\ntwo\n"
    await placement.want()
    await until(lambda: not (agent.root / "attempts" / key_of(attempt)).exists())


async def _two(placement: Placement) -> bool:
    return len(await placement.said(NodeJoined)) == 2


async def _has(placement: Placement, text: str) -> bool:
    return text in await placement.printed()


async def test_sigterm_leaves_the_task_to_the_next_agent(
    placement: Placement, agent: AgentProcess, tmp_path: Path
) -> None:
    """Given a task, when its agent is ended in order, then the task runs on and is adopted."""
    agent.start()
    (joined,) = await until(lambda: placement.said(NodeJoined))
    await placement.want(a_task(tmp_path, joined.inventory.gpus[0].uuid))
    await until(lambda: placement.said(TaskStarted))
    assert agent.end(signal.SIGTERM) == 0
    (tmp_path / "go").touch()
    agent.start()
    (finished,) = await until(lambda: placement.said(TaskFinished))
    assert finished.exit_code == 3
    await until(lambda: placement.beats)
    assert {beat["boot_id"] for beat in placement.beats} == {str(joined.boot_id)}


class TwoTasks:
    """A task that may be requeued and one that waits; each writes a line when it begins."""

    def __init__(self, agent: AgentProcess, path: Path) -> None:
        self._agent, self._path = agent, path
        self.requeue, self.waits = self._task(1, OnNodeLoss.REQUEUE), self._task(2, OnNodeLoss.WAIT)

    def _task(self, number: int, loss: OnNodeLoss) -> DesiredAttempt:
        script = f"echo {number} >> {self._path}/begun; exec sleep 300"
        return an_attempt(number, spec={"command": ("sh", "-c", script), "on_node_loss": loss})

    async def begin(self, placement: Placement) -> None:
        self._agent.start()
        await until(lambda: placement.said(NodeJoined))
        await placement.want(self.requeue, self.waits)
        await until(lambda: self.runs(self.requeue) and self.runs(self.waits))

    def runs(self, attempt: DesiredAttempt) -> bool:
        path = self._agent.root / "attempts" / key_of(attempt)
        seen = AttemptDir(path).observed(host_boot_id()) if path.exists() else None
        return seen is not None and seen.phase is AttemptPhase.RUNNING

    async def stopped_after_s(self) -> float:
        """Wait until the one that may be requeued is stopped; how long after the last renewal."""
        lease = LeaseFiles(self._agent.root).read()
        assert lease is not None
        await until(lambda: not self.runs(self.requeue))
        return boot_clock_s() - lease.renewed_s

    async def check_node_lost(self, placement: Placement) -> None:
        """It was reported once, as lost; it never ran again; the other runs."""
        (finished,) = await until(lambda: placement.said(TaskFinished))
        said = (finished.run_id, finished.outcome, finished.exit_code)
        assert said == (self.requeue.run_id, Outcome.NODE_LOST, 143)
        await asyncio.sleep(2.0)
        assert len(await placement.said(TaskFinished)) == 1
        assert sorted((self._path / "begun").read_text().split()) == ["1", "2"]
        assert self.runs(self.waits)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "halted"])
async def test_without_its_agent_a_requeueable_task_ends_with_the_lease(
    placement: Placement, agent: AgentProcess, tmp_path: Path, how: signal.Signals
) -> None:
    """Given an agent killed or halted, then the watchdog stops that task, the other runs on.

    The agent that comes back reports node_lost and does not run it again, though still listed.
    """
    tasks = TwoTasks(agent, tmp_path)
    await tasks.begin(placement)
    if how is signal.SIGKILL:
        agent.end(how)
    else:
        agent.signal(how)
    assert TTL_S <= await tasks.stopped_after_s() < TTL_S + LATE_S
    assert tasks.runs(tasks.waits)
    if how is signal.SIGKILL:
        agent.start()
    else:
        agent.signal(signal.SIGCONT)
    await tasks.check_node_lost(placement)
    await placement.want(tasks.waits)
    key = key_of(tasks.requeue)
    await until(lambda: not (agent.root / "attempts" / key).exists())
    await until(lambda: key not in LeaseFiles(agent.root).stopped())


async def test_a_broker_away_is_a_partition(
    placement: Placement, server: NatsServer, agent: AgentProcess, tmp_path: Path
) -> None:
    """Given a broker that is back in time, then all run on; away for longer, one is stopped."""
    tasks = TwoTasks(agent, tmp_path)
    await tasks.begin(placement)
    server.kill()
    await asyncio.sleep(TTL_S / 3)
    server.start()
    before = LeaseFiles(agent.root).read()
    await until(lambda: LeaseFiles(agent.root).read() != before)
    await asyncio.sleep(TTL_S)
    assert tasks.runs(tasks.requeue)
    assert LeaseFiles(agent.root).stopped() == {}
    server.kill()
    await asyncio.sleep(0.5)
    assert TTL_S <= await tasks.stopped_after_s() < TTL_S + LATE_S
    assert tasks.runs(tasks.waits)
    server.start()
    await tasks.check_node_lost(placement)


async def test_placement_away_is_a_partition_too(
    placement: Placement, agent: AgentProcess, tmp_path: Path
) -> None:
    """Given heartbeats that the broker takes and no answer, then the lease is not renewed."""
    tasks = TwoTasks(agent, tmp_path)
    await tasks.begin(placement)
    placement.silent = True
    await asyncio.sleep(0.5)
    assert TTL_S <= await tasks.stopped_after_s() < TTL_S + LATE_S
    assert tasks.runs(tasks.waits)


async def test_a_watchdog_that_is_killed_is_replaced(
    placement: Placement, agent: AgentProcess, tmp_path: Path
) -> None:
    """Given a watchdog killed under a living agent, then another watches; it leaves in order."""
    tasks = TwoTasks(agent, tmp_path)
    await tasks.begin(placement)
    first = agent.watchdog()
    assert first is not None
    assert os.getsid(first) == first
    agent.end_watchdog()
    await until(lambda: agent.watchdog() not in (None, first))
    assert tasks.runs(tasks.requeue)
    agent.end(signal.SIGKILL)
    assert TTL_S <= await tasks.stopped_after_s() < TTL_S + LATE_S
    agent.start()
    await until(lambda: placement.said(TaskFinished))
    await placement.want(tasks.waits)
    await asyncio.sleep(1.0)
    assert agent.end(signal.SIGTERM) == 0
    await until(lambda: agent.watchdog() is None)


async def test_without_such_tasks_there_is_no_watchdog(
    placement: Placement, agent: AgentProcess, tmp_path: Path
) -> None:
    """Given a task that waits for its node, then nothing watches it and it begins at once."""
    agent.start()
    (joined,) = await until(lambda: placement.said(NodeJoined))
    await placement.want(a_task(tmp_path, joined.inventory.gpus[0].uuid))
    await until(lambda: placement.said(TaskStarted))
    assert agent.watchdog() is None


async def test_an_agent_starts_without_its_broker(
    server: NatsServer, placement: Placement, agent: AgentProcess
) -> None:
    """Given no broker, then the agent serves its tasks, and joins when the broker comes."""
    server.kill()
    agent.start()
    await until((agent.root / "usage_port").exists)
    server.start()
    await until(lambda: placement.said(NodeJoined))
    assert agent.end(signal.SIGTERM) == 0


def test_settings_name_a_label_for_the_node() -> None:
    """Given no name, then the host's is used in the form that subjects take."""
    assert Settings().node == Settings().node.lower()
    assert Settings(node="gpu-host-7").node_dir.name == "gpu-host-7"
