"""An event changes: old bytes are read as the new version, and releases change side by side."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from orca_runtime.clock import SystemClock
from orca_runtime.errors import UnknownEventError
from orca_runtime.fold import fold_one, unfolded
from orca_runtime.jetstream import JetStreamLog
from orca_runtime.lease import SoleLease
from orca_runtime.log import Stored
from orca_runtime.memory_log import MemoryLog
from orca_runtime.shell import DeciderShell
from orca_runtime.testing_nats import NatsServer
from orca_runtime.testing_toy import TOY, add
from orca_schemas.registry import EVENTS
from orca_schemas.upcasts import UPCASTS

PROGRAM = Path(__file__).with_name("releases.py")
LIMIT_S = 20.0


def _releases() -> Any:
    spec = importlib.util.spec_from_file_location("releases", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


releases = _releases()


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test teaches this process is forgotten after it."""
    monkeypatch.setitem(EVENTS, "Noted", EVENTS["Noted"])
    monkeypatch.setitem(UPCASTS, ("Noted", 1), lambda data: data)


async def written_by(decider: Any, log: MemoryLog, *numbers: int) -> DeciderShell[Any]:
    """Let a release decide numbers, after whatever stands in the log."""
    before = (await log.state("CLIENT")).last_sequence
    shell = DeciderShell(decider, log, clock=SystemClock(), lease=SoleLease())
    task = asyncio.create_task(shell.run())
    for number in numbers:
        await log.publish(add(number))
    async with asyncio.timeout(5):
        while shell.folded.done("CLIENT") < before + len(numbers):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return shell


async def own(log: MemoryLog) -> list[Stored]:
    """The whole own stream."""
    async for batch in log.read(TOY.stream, 0):
        return list(batch)
    raise AssertionError


class TestOneProcess:
    """What one release makes of the bytes of another."""

    async def test_old_bytes_are_read_as_the_newest_version(self, registry: None) -> None:
        """Given v1 in the log, then a release that knows v2 folds it with the field that the
        upcast fills in, and its own v2 after it."""
        log = MemoryLog(time.time_ns)
        await written_by(TOY, log, 1, 2)
        shell = await written_by(releases.decider_of("writes"), log, 4)
        bodies = [json.loads(one.body) for one in await own(log)]
        assert [body["type"] for body in bodies] == ["orca.Noted.v1"] * 2 + ["orca.Noted.v2"]
        assert ["weight" in body["data"] for body in bodies] == [False, False, True]
        assert shell.folded.state.total == 1 + 2 + 4 * releases.WEIGHT_V2

    async def test_a_release_that_reads_v2_and_says_v1_folds_what_it_will_read(
        self, registry: None
    ) -> None:
        """Given the release in between, then what it says is v1, and its state is that of the
        fold of the bytes it wrote."""
        log = MemoryLog(time.time_ns)
        decider = releases.decider_of("reads")
        shell = await written_by(decider, log, 3, 5)
        folded = unfolded(decider)
        for stored in await own(log):
            assert b"orca.Noted.v1" in stored.body
            folded, _ = fold_one(decider, folded, stored)
        assert folded == shell.folded
        assert folded.state.total == 8

    async def test_a_release_before_does_not_decide_on_what_it_cannot_read(self) -> None:
        """Given v2 in the own stream, then a release that knows v1 alone names the event and
        the remedy."""
        log = MemoryLog(time.time_ns)
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(EVENTS, "Noted", EVENTS["Noted"])
            patch.setitem(UPCASTS, ("Noted", 1), releases.upcast)
            await written_by(releases.decider_of("writes"), log, 1)
        (stored,) = await own(log)
        with pytest.raises(UnknownEventError, match=r"v2.*start a release that reads it"):
            fold_one(TOY, unfolded(TOY), stored)


class Replica:
    """One release as a process."""

    def __init__(self, release: str, url: str, folder: Path) -> None:
        self.release, self._out = release, folder / f"{release}-{time.monotonic_ns()}.json"
        command = [sys.executable, str(PROGRAM), release, url, str(self._out)]
        self.process = subprocess.Popen(command)

    def told(self) -> dict[str, Any]:
        """What it last said of itself."""
        with contextlib.suppress(OSError, ValueError):
            found: dict[str, Any] = json.loads(self._out.read_text())
            return found
        return {}

    async def until(self, **wanted: Any) -> dict[str, Any]:
        """Wait until it says so."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            told = self.told()
            if told and all(told[name] == value for name, value in wanted.items()):
                return told
            await asyncio.sleep(0.05)
        raise AssertionError(f"{self.release} is not {wanted} in {LIMIT_S} s: {self.told()}")

    def signal(self, number: int) -> None:
        """Stop it, let it go on, end it."""
        os.kill(self.process.pid, number)


class Site:
    """A broker and the replicas on it."""

    def __init__(self, server: NatsServer, folder: Path) -> None:
        self._server, self._folder = server, folder
        self.replicas: list[Replica] = []

    def start(self, release: str) -> Replica:
        """Start one more."""
        self.replicas.append(Replica(release, self._server.url, self._folder))
        return self.replicas[-1]

    async def say(self, *numbers: int) -> None:
        """Publish inputs."""
        log = await JetStreamLog.connect(self._server.url, name="test")
        for number in numbers:
            await log.publish(add(number))
        await log.close()


@pytest.fixture
def site(nats_server: NatsServer, tmp_path: Path) -> Iterator[Site]:
    """A broker of the test's own."""
    made = Site(nats_server, tmp_path)
    yield made
    for replica in made.replicas:
        replica.process.kill()
        replica.process.wait()


async def test_a_release_that_meets_a_newer_event_is_not_ready_and_lets_the_newer_decide(
    site: Site,
) -> None:
    """Given an old release that is active and a new one that stands by, when the old one is away
    long enough for the new one to say v2, then the old one, back again, is not ready, says which
    event it cannot read, never decides again, and the new one goes on."""
    old = site.start("before")
    await old.until(active=True)
    await site.say(1, 2)
    await old.until(total=3)
    new = site.start("writes")
    await new.until(ready=True, total=3, active=False)
    old.signal(signal.SIGSTOP)
    await new.until(active=True)
    await site.say(4)
    await new.until(total=3 + 40)
    old.signal(signal.SIGCONT)
    told = await old.until(ready=False, active=False)
    assert "METERING" in told["reason"]
    assert "Noted.v2" in told["reason"]
    assert "start a release that reads it" in told["reason"]
    await site.say(5)
    await new.until(total=3 + 40 + 50, active=True)
    assert old.told()["active"] is False
    assert old.told()["total"] == 3, "what it could read, and nothing of its own"


async def test_the_release_in_between_takes_over_from_either_side(site: Site) -> None:
    """Given a release that reads v2 and says v1 beside one that says v2, then each takes over from
    the other, both are ready all the time, and they reach the same state."""
    reads, writes = site.start("reads"), site.start("writes")
    await reads.until(ready=True)
    await writes.until(ready=True)
    first, second = (reads, writes) if await _is_active(reads, writes) else (writes, reads)
    await site.say(1)
    weight = {"reads": 1, "writes": 10}
    total = weight[first.release]
    await second.until(total=total, active=False)
    first.signal(signal.SIGSTOP)
    await second.until(active=True)
    await site.say(1)
    total += weight[second.release]
    there = await second.until(total=total)
    first.signal(signal.SIGCONT)
    here = await first.until(total=total, ready=True, active=False)
    assert here["digest"] == there["digest"]
    assert here["sequence"] == there["sequence"] == 2


async def _is_active(one: Replica, other: Replica) -> bool:
    """Whether it is the first of two that is active, once either is."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        if one.told()["active"] or other.told()["active"]:
            return bool(one.told()["active"])
        await asyncio.sleep(0.05)
    raise AssertionError("neither is active")
