"""One bit of a stored stream turned over while all is stopped: nothing is decided on a hole."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest
from checks import charged_totals
from orca_client.connection import Connection
from orca_client.submit import submit, submit_many
from orca_schemas.asks import Status
from orca_schemas.errors import OrcaError
from orca_schemas.subjects import Stream
from outcome import all_final
from stack_kit import RunningStack, eventually, manifest, running_stack, start, stop, wait_running

from tests.chaos.load import declare

TASKS = 30
OWNER = {Stream.ADMISSION: "admission", Stream.METERING: "metering"}
OWNER_LONG = OWNER | {Stream.PLACEMENT: "placement"}
WATCHED_S = 6.0


def flip_a_bit(home: Path, stream: str) -> None:
    """Turn one bit over in the middle of a stream's messages, as a failing disk does."""
    block = max((home / "nats").rglob(f"streams/{stream}/msgs/*.blk"), key=_size)
    content = bytearray(block.read_bytes())
    content[len(content) // 2] ^= 1
    block.write_bytes(content)


def _size(path: Path) -> int:
    return path.stat().st_size


async def status(stack: RunningStack, service: str) -> Status | None:
    """What a service says of itself; None while it, or the broker, does not answer."""
    with contextlib.suppress(OrcaError):
        async with await Connection.open(stack.nats_url, "root") as root:
            return await root.ask(Status, service, "status")
    return None


async def not_ready(stack: RunningStack, service: str) -> Status:
    """Wait until a service says that it is not ready."""

    async def probe() -> Status | None:
        found = await status(stack, service)
        return found if found is not None and "not ready" in found.reason else None

    found: Status = await eventually(f"{service} is not ready", probe, 40)
    return found


async def work(stack: RunningStack) -> None:
    """A few tasks from submission to bill."""
    async with await Connection.open(stack.nats_url, "alice") as alice:
        await declare(alice)
        documents = [manifest(f"task-{n}", "team-alpha", ["/bin/true"]) for n in range(TASKS)]
        await submit_many(alice, documents)
    await eventually("all are billed", lambda: all_final(stack, TASKS), 90)


async def billed(stack: RunningStack) -> dict[str, Any]:
    """What was charged so far."""
    return dict(charged_totals((await stack.events(Stream.BILLING))[Stream.BILLING]).pico_usd)


async def last_of(stack: RunningStack, stream: str) -> int:
    """Where a stream ends."""
    async with stack.log() as log:
        return (await log.state(stream)).last_sequence


@pytest.mark.timeout(400)
async def test_a_flipped_bit_makes_its_service_refuse_until_a_backup_is_restored(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Given a flipped bit in a stream, its owner says so and what to do, and decides nothing.

    What is restored is the whole data directory: nodes and tables remember how far the log went,
    and do not take an older one for the same (see docs/promises.md).
    """
    owners = OWNER_LONG if request.config.getoption("--long", default=False) else OWNER
    home, backup = tmp_path / "home", tmp_path / "backup"
    home.mkdir()
    with running_stack(home) as stack:
        await work(stack)
        before = await billed(stack)
        stop(stack)
        shutil.copytree(home, backup)
        for stream, service in owners.items():
            flip_a_bit(home, stream)
            start(stack)
            found = await not_ready(stack, service)
            assert not found.ready
            assert not found.active
            assert stream in found.reason
            assert "restore all streams from one backup" in found.reason
            await assert_decides_nothing(stack, stream)
            stop(stack)
            shutil.rmtree(home)
            shutil.copytree(backup, home)
        start(stack)
        wait_running(stack)
        assert await billed(stack) == before
        async with await Connection.open(stack.nats_url, "alice") as alice:
            await submit(alice, manifest("after", "team-alpha", ["/bin/true"]))
        await eventually("the restored stack works", lambda: all_final(stack, TASKS + 1), 60)


async def assert_decides_nothing(stack: RunningStack, stream: str) -> None:
    """Watch a damaged stream while there is something to decide: it must not grow."""
    end = await last_of(stack, stream)
    async with await Connection.open(stack.nats_url, "alice") as alice:
        await submit(alice, manifest("unanswered", "team-alpha", ["/bin/true"]), uuid.uuid4())
    await asyncio.sleep(WATCHED_S)
    assert await last_of(stack, stream) == end
