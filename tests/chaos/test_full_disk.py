"""The file system of the log is full: all stops, nothing acknowledged is lost, space cures it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from orca_client.connection import Connection
from orca_schemas.subjects import Stream
from stack_kit import RunningStack, eventually, running_stack

from tests.chaos.faults import Chaos
from tests.chaos.load import declare, send, tasks
from tests.chaos.verdict import all_done, judge

TASKS, SENDING_S = 120, 30.0
DISK = "64m"
FULL_AFTER_S, FULL_S = 8.0, 12.0


@contextlib.contextmanager
def small_disk(path: Path) -> Iterator[None]:
    """A file system of DISK bytes at ``path``; skips where it cannot be mounted."""
    path.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(command, check=False).returncode:
        pytest.skip("only root may mount a file system")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(path: Path) -> Path:
    """Take all the room there is; returns the file to delete."""
    filler = path / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    return filler


async def ends(stack: RunningStack) -> dict[str, int]:
    """Where each stream ends."""
    async with stack.log() as log:
        return {stream: (await log.state(stream)).last_sequence for stream in Stream}


@pytest.mark.timeout(500)
async def test_a_full_disk_stops_all_loses_nothing_and_is_cured_by_space(tmp_path: Path) -> None:
    """Given no room for the log, users get no confirmation; given room again, all is as told."""
    home = tmp_path / "home"
    home.mkdir()
    witness = tmp_path / "began"
    witness.touch()
    load = tasks(Random(5), TASKS, witness)
    with small_disk(home / "nats"), running_stack(home, ORCA_STANDBY="true") as stack:
        async with await Connection.open(stack.nats_url, "root") as root:
            await declare(root)
        sending = asyncio.create_task(send(stack, load, SENDING_S))
        await asyncio.sleep(FULL_AFTER_S)
        filler = await asyncio.to_thread(fill, home / "nats")
        await asyncio.sleep(FULL_S)
        full = await ends(stack)
        doctor = await asyncio.to_thread(stack.orca, "doctor")
        await asyncio.sleep(3)
        assert await ends(stack) == full, "something was stored on a full disk"
        assert not sending.done()
        assert doctor.returncode != 0
        disk = next(line for line in doctor.stdout.splitlines() if " disk " in line)
        assert disk.startswith("fail")
        assert "make room there, then orca down and orca up" in disk
        filler.unlink()
        Chaos(stack).kill("nats")  # freed space is seen by the broker only when it starts
        await eventually("all is sent", sending.done, 120)
        await sending
        await all_done(stack, load, 150)
        after = await ends(stack)
        assert all(after[stream] >= full[stream] for stream in Stream)
        print("events", await judge(stack, load, witness))
