"""The whole agent with real processes against a bus in memory."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from orca_node_agent.agent import Agent, Options
from orca_node_agent.gpus import GpuBackend, GpuProbeError, NoGpus
from orca_node_agent.host import Capacity
from orca_node_agent.identity import Identity
from orca_node_agent.metrics import AgentCollector
from orca_node_agent.process import ProcessExecutor
from orca_node_agent.process_files import AttemptDir
from orca_node_agent.records import key_of
from orca_node_agent.simulated import SimulatedGpus
from orca_node_agent.spool import SpoolLimits
from orca_node_agent.testing import MemoryBus, a_slot, an_attempt
from orca_runtime.clock import SystemClock
from orca_schemas.asks import DesiredAttempt, StopAsked
from orca_schemas.events.node import (
    NodeJoined,
    OrderRefused,
    TaskFinished,
    TaskStarted,
)
from orca_schemas.events.usage import CpuUsed, GpuUsed, TokensUsed
from orca_schemas.values import Gpu, Meter, Outcome
from prometheus_client import CollectorRegistry

WAIT_S = 15.0
NODE = "node-1"
OPTIONS = Options(node=NODE, capacity=Capacity(4_000, 8_192))
CANCEL = StopAsked(outcome=Outcome.CANCELLED, message="no longer wanted", grace_ms=10_000)
REPORT = """
import json, os, urllib.request
body = {"id": "call-1", "model": "llama-3", "usage": {"prompt_tokens": 20, "completion_tokens": 10}}
request = urllib.request.Request(
    os.environ["ORCA_USAGE_URL"], json.dumps(body).encode(),
    {"Authorization": "Bearer " + os.environ["ORCA_USAGE_TOKEN"]})
print(urllib.request.urlopen(request).read().decode())
"""


@asynccontextmanager
async def running(
    path: Path, bus: MemoryBus, options: Options = OPTIONS, gpus: GpuBackend | None = None
) -> AsyncIterator[Agent]:
    """An agent at work in ``path``; stopped in order after, its tasks left as they are."""
    identity = Identity(path)
    executor = ProcessExecutor(path / "attempts", os.environ["PATH"])
    agent = Agent(options, identity, executor, gpus or NoGpus(), bus, SystemClock())
    task = asyncio.create_task(agent.run())
    try:
        yield agent
    finally:
        agent.stop()
        await task
        identity.close()


async def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        await asyncio.sleep(0.02)


@pytest.fixture
def bus(tmp_path: Path) -> Any:
    """A bus; every process of the test is gone after it."""
    yield MemoryBus()
    for path in (tmp_path / "attempts").glob("*"):
        found = AttemptDir(path).running()
        if found is not None and found.child.alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(found.child.pid, signal.SIGKILL)


def sh(script: str, number: int = 1, **changes: Any) -> DesiredAttempt:
    spec = {"command": ("sh", "-c", script)} | changes.pop("spec", {})
    return an_attempt(number, spec=spec, **changes)


def one(found: list[Any]) -> Any:
    assert len(found) == 1, found
    return found[0]


async def test_from_desired_to_finished(tmp_path: Path, bus: MemoryBus) -> None:
    """Given a GPU task that reports tokens, then started, usage, finished, and it is cleared."""
    gpus = SimulatedGpus("A100:1", NODE)
    uuid = (await gpus.inventory())[0].uuid
    attempt = an_attempt(
        spec={"command": ("python3", "-c", REPORT)},
        slots=(a_slot(uuid),), granted_tokens=100,
    )  # fmt: skip
    async with running(tmp_path, bus, gpus=gpus):
        bus.want(attempt)
        await until(lambda: bus.said(TaskFinished))
        finished = one(bus.said(TaskFinished))
        assert (finished.outcome, finished.exit_code) == (Outcome.SUCCEEDED, 0)
        started, used = one(bus.said(TaskStarted)), one(bus.said(TokensUsed))
        assert started.fence == used.fence == finished.fence == attempt.fence
        assert used.classes.total == 30
        assert {end.meter: end.last_number for end in finished.used} == {
            Meter.TOKENS: 1, Meter.GPU: 1, Meter.CPU: 1,
        }  # fmt: skip
        gpu, cpu = one(bus.said(GpuUsed)), one(bus.said(CpuUsed))
        lived_ms = finished.finished_at_ms - started.started_at_ms
        assert gpu.duration_ms == cpu.duration_ms == lived_ms
        assert gpu.gpu_type == "A100"
        await until(lambda: '"exhausted": false' in printed(bus, attempt))
        bus.want()
        await until(lambda: not (tmp_path / "attempts" / key_of(attempt)).exists())
    joined = one(bus.said(NodeJoined))
    assert joined.inventory.gpus[0].simulated
    assert (joined.inventory.cpu_milli, joined.inventory.executor) == (4_000, "process")


def log_chunks(bus: MemoryBus, attempt: DesiredAttempt) -> list[dict[str, Any]]:
    subject = f"orca.logs.team-alpha.alice.{attempt.task_id}.{NODE}"
    return [json.loads(m.body) for m in bus.messages if m.subject == subject]


def printed(bus: MemoryBus, attempt: DesiredAttempt) -> str:
    return "".join(chunk["text"] for chunk in log_chunks(bus, attempt))


async def test_an_attempt_still_listed_is_not_run_again(tmp_path: Path, bus: MemoryBus) -> None:
    """Given an ended attempt that placement still lists, also over a restart, then it ran once."""
    attempt = sh(f"echo ran >> {tmp_path}/ran")
    for _ in range(2):
        async with running(tmp_path, bus):
            bus.want(attempt)
            await until(lambda: bus.said(TaskFinished))
            await asyncio.sleep(1.2)
    assert (tmp_path / "ran").read_text() == "ran\n"
    assert len(bus.said(TaskFinished)) == 1
    assert len(bus.said(NodeJoined)) == 2


async def test_a_stop(tmp_path: Path, bus: MemoryBus) -> None:
    """Given a running task, when a stop is ordered, then it ends with the order's outcome."""
    attempt = sh("exec sleep 300")
    async with running(tmp_path, bus):
        bus.want(attempt)
        await until(lambda: bus.said(TaskStarted))
        bus.want(attempt.model_copy(update={"stop": CANCEL}))
        await until(lambda: bus.said(TaskFinished))
    finished = one(bus.said(TaskFinished))
    assert (finished.outcome, finished.exit_code) == (Outcome.CANCELLED, 143)
    assert finished.message == CANCEL.message


async def test_stopped_before_it_began(tmp_path: Path, bus: MemoryBus) -> None:
    """Given an assignment that comes with its stop, then it never runs and that is said."""
    attempt = sh(f"touch {tmp_path}/ran", stop=CANCEL)
    async with running(tmp_path, bus):
        bus.want(attempt)
        await until(lambda: bus.said(TaskFinished))
    finished = one(bus.said(TaskFinished))
    assert (finished.outcome, finished.started_at_ms) == (Outcome.CANCELLED, None)
    assert bus.said(TaskStarted) == []
    assert not (tmp_path / "ran").exists()


async def test_a_command_that_is_not_there(tmp_path: Path, bus: MemoryBus) -> None:
    """Given an unknown program, then image_error without a start."""
    async with running(tmp_path, bus):
        bus.want(an_attempt(spec={"command": ("no-such-program",)}))
        await until(lambda: bus.said(TaskFinished))
    finished = one(bus.said(TaskFinished))
    assert finished.outcome is Outcome.IMAGE_ERROR
    assert "no-such-program" in finished.message
    assert bus.said(TaskStarted) == []


async def test_the_broker_away(tmp_path: Path, bus: MemoryBus) -> None:
    """Given a broker that goes, then tasks run on, the spool grows, all comes later in order."""
    attempt = sh("sleep 1.5", spec={"report_interval_ms": 500})
    async with running(tmp_path, bus) as agent:
        bus.want(attempt)
        await until(lambda: bus.said(TaskStarted))
        bus.away = True
        await until(lambda: agent.spool.records[key_of(attempt)].progress.phase == "ended")
        rows = agent.spool.rows
        assert rows >= 3
        assert bus.said(TaskFinished) == []
        bus.away, bus.lose_acks = False, 2
        await until(lambda: bus.said(TaskFinished))
        await until(lambda: agent.spool.rows == 0)
    cpu = bus.said(CpuUsed)
    assert [record.number for record in cpu] == list(range(1, len(cpu) + 1))
    assert len(cpu) >= 2
    edges = [record.from_ms + record.duration_ms for record in cpu]
    assert [record.from_ms for record in cpu[1:]] == edges[:-1]
    assert edges[-1] == one(bus.said(TaskFinished)).finished_at_ms
    order = [type(event.data) for event in bus.events()]
    assert order.index(TaskStarted) < order.index(CpuUsed) < order.index(TaskFinished)


async def test_a_restart_adopts(tmp_path: Path, bus: MemoryBus) -> None:
    """Given a running task, when the agent restarts, then one start, one end, no time lost."""
    attempt = sh(f"echo one; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; echo two; exit 3")
    async with running(tmp_path, bus):
        bus.want(attempt)
        await until(lambda: "one" in printed(bus, attempt))
        await until(lambda: bus.said(TaskStarted))
    (tmp_path / "go").touch()
    await asyncio.sleep(0.5)  # it ends while no agent is there
    async with running(tmp_path, bus):
        await until(lambda: bus.said(TaskFinished))
        await until(lambda: "two" in printed(bus, attempt))
    started, finished = one(bus.said(TaskStarted)), one(bus.said(TaskFinished))
    assert (finished.outcome, finished.exit_code) == (Outcome.FAILED, 3)
    lived_ms = finished.finished_at_ms - started.started_at_ms
    assert sum(record.duration_ms for record in bus.said(CpuUsed)) == lived_ms
    assert printed(bus, attempt) == "one\ntwo\n"
    chunks = log_chunks(bus, attempt)
    assert [chunk["offset"] for chunk in chunks] == [0, 4]


async def test_placement_away_keeps_and_starts_nothing(tmp_path: Path, bus: MemoryBus) -> None:
    """Given no answer, or a node not joined, then what runs is kept and nothing is begun."""
    attempt = sh("exec sleep 300")
    async with running(tmp_path, bus):
        bus.want(attempt)
        await until(lambda: bus.said(TaskStarted))
        bus.known = False
        bus.want(sh("true", 2))
        await until(lambda: bus.said(NodeJoined))
        await asyncio.sleep(1.0)
        assert len(bus.said(TaskStarted)) == 1
        assert bus.said(TaskFinished) == []
        bus.known = True
        bus.want(attempt)
        await asyncio.sleep(0.5)
        assert bus.said(TaskFinished) == []


async def test_wishes_in_several_parts(tmp_path: Path, bus: MemoryBus) -> None:
    """Given more than one answer holds, then all is begun, and nothing taken for over."""
    bus.page = 2
    async with running(tmp_path, bus):
        bus.want(*(sh("exec sleep 300", number) for number in range(1, 6)))
        await until(lambda: len(bus.said(TaskStarted)) == 5)
        await asyncio.sleep(0.7)
        assert bus.said(TaskFinished) == []
        bus.want(*(sh("exec sleep 300", number) for number in (1, 2, 3, 5)))
        await until(lambda: bus.said(TaskFinished))
        assert one(bus.said(TaskFinished)).run_id == sh("", 4).run_id


async def test_an_older_answer_is_ignored(tmp_path: Path, bus: MemoryBus) -> None:
    """Given an answer from the past, also after a restart, then it is not acted on."""
    attempt = sh("exec sleep 300")
    async with running(tmp_path, bus):
        bus.sequence = 40
        bus.want(attempt)
        await until(lambda: bus.said(TaskStarted))
    async with running(tmp_path, bus):
        bus.sequence = 30
        bus.want(sh("true", 2))
        await asyncio.sleep(1.0)
        assert len(bus.said(TaskStarted)) == 1
        assert bus.said(TaskFinished) == []


async def test_a_full_spool_refuses_new_work(tmp_path: Path, bus: MemoryBus) -> None:
    """Given a spool at its limit, when work is assigned, then it is refused, not dropped."""
    options = replace(OPTIONS, limits=SpoolLimits(max_rows=2))

    async def never(message: Any) -> Any:
        await asyncio.Event().wait()

    publish, bus.publish = bus.publish, never  # type: ignore[method-assign]
    async with running(tmp_path, bus, options) as agent:
        bus.want(sh("exec sleep 300"))
        await until(lambda: agent.spool.full)
        bus.want(sh("exec sleep 300"), sh("true", 2))
        await until(lambda: len(agent.spool.records) == 2)
        rows = [row.message.subject.rsplit(".", 1)[1] for row in agent.spool.waiting(10)]
        assert rows == ["NodeJoined", "TaskStarted", "OrderRefused"]
        bus.publish = publish  # type: ignore[method-assign]
    assert "spool is full" in one(bus.said(OrderRefused)).reason.message


class FailingGpus:
    """A driver that answers while told to."""

    name = "failing"

    def __init__(self) -> None:
        self.fails = True

    async def inventory(self) -> tuple[Gpu, ...]:
        if self.fails:
            raise GpuProbeError("hangs")
        return (Gpu(uuid="GPU-1", type="A100", memory_mib=81_920, simulated=False),)


async def test_a_hanging_driver_stops_neither_heartbeats_nor_cpu_work(
    tmp_path: Path, bus: MemoryBus
) -> None:
    """Given no answer of the driver, then GPU work is refused, the rest goes on and says so."""
    async with running(tmp_path, bus, gpus=FailingGpus()):
        bus.want(an_attempt(1, slots=(a_slot("GPU-1"),)), an_attempt(2))
        await until(lambda: bus.said(OrderRefused) and bus.said(TaskFinished))
        await until(lambda: bus.beats)
    assert "driver" in one(bus.said(OrderRefused)).reason.message
    assert json.loads(bus.beats[-1])["gpus_answer"] is False


async def test_heartbeats(tmp_path: Path, bus: MemoryBus) -> None:
    """Given an agent, then it beats with its boot, the answer acted on, and what waits."""
    async with running(tmp_path, bus) as agent:
        bus.want()
        await until(lambda: len(bus.beats) >= 2)
        beat = json.loads(bus.beats[-1])
        assert set(beat) == {"boot_id", "sequence_acted", "spool_rows", "time_ms", "gpus_answer"}
        assert beat["sequence_acted"] == 1
        assert beat["boot_id"] == str(one(bus.said(NodeJoined)).boot_id)
        assert agent.spool.rows == 0


async def test_tasks_end_with_the_agent_where_that_is_asked(tmp_path: Path, bus: MemoryBus) -> None:
    """Given stop_tasks_on_exit, when the agent stops, then tasks are ended and reported."""
    attempt = sh("exec sleep 300")
    async with running(tmp_path, bus, replace(OPTIONS, stop_tasks_on_exit=True)):
        bus.want(attempt)
        await until(lambda: bus.said(TaskStarted))
    assert one(bus.said(TaskFinished)).outcome is Outcome.NODE_LOST
    found = AttemptDir(tmp_path / "attempts" / key_of(attempt)).running()
    assert found is not None
    assert not found.child.alive()


async def test_a_fenced_attempt_gives_its_gpu_up_before_the_next_starts(
    tmp_path: Path, bus: MemoryBus
) -> None:
    """Given a task that placement gave up, when another gets its GPU, then never both at once."""
    gpus = SimulatedGpus("A100:1", NODE)
    slot = a_slot((await gpus.inventory())[0].uuid)
    first = sh("trap 'sleep 0.7; exit 1' TERM; while :; do sleep 0.05; done", slots=(slot,))
    second = sh("true", 2, slots=(slot,))
    async with running(tmp_path, bus, gpus=gpus):
        bus.want(first)
        await until(lambda: bus.said(TaskStarted))
        await asyncio.sleep(0.3)
        bus.want(second)
        await until(lambda: len(bus.said(TaskFinished)) == 2)
    ended = next(e for e in bus.said(TaskFinished) if e.run_id == first.run_id)
    begun = next(e for e in bus.said(TaskStarted) if e.run_id == second.run_id)
    assert ended.outcome is Outcome.NODE_LOST
    assert begun.started_at_ms >= ended.finished_at_ms


async def test_output_is_cut_at_characters_not_in_them(tmp_path: Path, bus: MemoryBus) -> None:
    """Given text of several bytes a character, then no chunk breaks one and none is lost."""
    script = "for i in $(seq 1 9000); do printf 'Größe%s ' $i; done; printf '\\377'"
    attempt = sh(script)
    async with running(tmp_path, bus):
        bus.want(attempt)
        await until(lambda: printed(bus, attempt).endswith("\ufffd"))
    text = printed(bus, attempt)
    assert text == "".join(f"Größe{i} " for i in range(1, 9001)) + "\ufffd"
    chunks = log_chunks(bus, attempt)
    assert len(chunks) >= 2
    assert all(len(chunk["text"].encode()) <= 64 * 1024 + 2 for chunk in chunks)


async def test_metrics_tell_what_the_agent_has_in_hand(tmp_path: Path, bus: MemoryBus) -> None:
    """Given one running attempt, it is counted under its phase, and the spool is shown."""
    async with running(tmp_path, bus) as agent:
        bus.want(sh("sleep 30"))
        await until(lambda: bus.said(TaskStarted))
        registry = CollectorRegistry()
        registry.register(AgentCollector(agent, NODE))
        labels = {"node": NODE, "phase": "started"}
        assert registry.get_sample_value("orca_node_attempts", labels) == 1
        assert registry.get_sample_value("orca_node_spool_full", {"node": NODE}) == 0


async def test_nothing_begins_before_placement_knows_the_boot(
    tmp_path: Path, bus: MemoryBus
) -> None:
    """Given placement that knows an earlier boot, then the node offers itself and waits."""
    bus.known_boot = UUID(int=1)
    async with running(tmp_path, bus):
        bus.want(sh("true"))
        await until(lambda: bus.said(NodeJoined))
        await asyncio.sleep(1)
        assert bus.said(TaskStarted) == []
        bus.known_boot = one(bus.said(NodeJoined)).boot_id
        await until(lambda: bus.said(TaskFinished))
