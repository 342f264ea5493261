"""Snapshots: the newest valid one, and never more than a shortcut."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from orca_runtime.clock import SystemClock
from orca_runtime.fold import Folded, fold_one, unfolded
from orca_runtime.lease import SoleLease
from orca_runtime.memory_log import MemoryLog
from orca_runtime.shell import DeciderShell
from orca_runtime.snapshot import KEPT, FileSnapshots
from orca_runtime.tables import state_digest
from orca_runtime.testing_toy import TOY, Toy, add
from pydantic import TypeAdapter


async def _run(log: MemoryLog, snapshots: Any, inputs: int) -> DeciderShell[Toy]:
    """Run a shell until so many CLIENT inputs are done."""
    shell = DeciderShell(TOY, log, clock=SystemClock(), lease=SoleLease(), snapshots=snapshots)
    task = asyncio.create_task(shell.run())
    async with asyncio.timeout(5):
        while shell.folded.done("CLIENT") < inputs:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return shell


@pytest.fixture
async def log() -> MemoryLog:
    found = MemoryLog(lambda: 1_764_547_200_000_000_000)
    for number in range(50):
        await found.publish(add(number))
    return found


@pytest.fixture
async def written(log: MemoryLog, tmp_path: Path) -> list[Path]:
    """Snapshots at 10, 20 and 50 of 50 events; the first is let go."""
    snapshots = FileSnapshots(TOY, log, tmp_path)
    shell = await _run(log, None, 50)
    folded = unfolded(TOY)
    async for batch in log.read(TOY.stream, 0):
        for stored in batch:
            folded, _ = fold_one(TOY, folded, stored)
            if folded.sequence in (10, 20, 50):
                snapshots.write(folded, shell.epoch)
        break
    return _names(tmp_path, "*.snapshot")


def _names(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.glob(pattern))


async def _load(log: MemoryLog, folder: Path) -> Folded[Toy] | None:
    return await FileSnapshots(TOY, log, folder).load()


async def test_the_newest_valid_snapshot_is_read(
    log: MemoryLog, written: list[Path], tmp_path: Path
) -> None:
    """Given several snapshots, then the newest is taken and no more than KEPT are kept."""
    assert len(written) == KEPT
    loaded = await _load(log, tmp_path)
    assert loaded is not None
    assert loaded.sequence == 50
    assert loaded.state.total == sum(range(50))


@pytest.mark.parametrize(
    "harm",
    ["cut", "flipped", "no header", "other schema", "other stream", "newer format", "newer field"],
)
async def test_one_that_cannot_be_trusted_is_set_aside(
    log: MemoryLog, written: list[Path], tmp_path: Path, harm: str
) -> None:
    """Given a newest snapshot that is damaged or of something else, then the one before is taken,
    and the fold reaches the digest of a fold from zero."""
    newest, body = written[-1], written[-1].read_bytes()
    head, _, state = body.partition(b"\n")
    match harm:
        case "cut":
            newest.write_bytes(body[:-20])
        case "flipped":
            newest.write_bytes(head + b"\n" + state.replace(b"1225", b"1226"))
        case "no header":
            newest.write_bytes(b"\x00" * 40)
        case "other schema":
            newest.write_bytes(_with(head, schema="0" * 32) + b"\n" + state)
        case "other stream":
            newest.write_bytes(_with(head, epoch=1) + b"\n" + state)
        case "newer format":
            newest.write_bytes(_with(head, format=99) + b"\n" + state)
        case "newer field":
            newest.write_bytes(_with(head, more="than is known here") + b"\n" + state)
    loaded = await _load(log, tmp_path)
    assert loaded is not None
    assert loaded.sequence == 20
    assert newest.with_suffix(".aside").exists()
    await log.publish(replace(add(7), id="one more"))
    shell = await _run(log, FileSnapshots(TOY, log, tmp_path), 51)
    fresh = await _run(log, None, 51)
    digests = {state_digest(TOY.state_type, one.folded.state) for one in (shell, fresh)}
    assert len(digests) == 1
    assert shell.folded == fresh.folded


def _with(head: bytes, **changes: object) -> bytes:
    return json.dumps(json.loads(head) | changes).encode()


async def test_snapshots_of_another_state_shape_are_not_read(
    log: MemoryLog, written: list[Path], tmp_path: Path
) -> None:
    """Given a release whose state has another shape, then it folds from zero."""
    newer = replace(TOY, state_type=TypeAdapter(dict[str, int]))
    assert await FileSnapshots(newer, log, tmp_path).load() is None


async def test_without_any_the_fold_starts_from_zero(log: MemoryLog, tmp_path: Path) -> None:
    """Given no snapshot, then there is none to load."""
    assert await _load(log, tmp_path / "new") is None


async def test_they_are_offered_at_every_event_and_written_seldom(
    log: MemoryLog, tmp_path: Path
) -> None:
    """Given a bound of 20 events, then a run of 50 in groups leaves one for its group."""
    snapshots = FileSnapshots(TOY, log, tmp_path, every_events=20)
    await _run(log, snapshots, 50)
    assert snapshots._writing is not None
    await snapshots._writing
    assert [path.name for path in _names(tmp_path, "*")] == [f"metering-{50:020d}.snapshot"]


async def test_one_of_a_release_that_folds_otherwise_is_set_aside(
    log: MemoryLog, written: list[Path], tmp_path: Path
) -> None:
    """Given snapshots of a release to which the same events meant something else, then this one
    reads none of them, folds from zero, and its own snapshots are read by itself alone."""
    other = FileSnapshots(TOY, log, tmp_path, fingerprint=lambda: "f" * 32)
    assert await other.load() is None
    assert _names(tmp_path, "*.snapshot") == []
    shell = await _run(log, other, 50)
    assert shell.folded.state.total == sum(range(50))
    path = other.write(shell.folded, shell.epoch)
    assert await other.read(path) == shell.folded
    with pytest.raises(ValueError, match="meant something else"):
        await FileSnapshots(TOY, log, tmp_path).read(path)


async def test_the_fingerprint_is_computed_once_and_only_when_needed(
    log: MemoryLog, tmp_path: Path
) -> None:
    """Given a fingerprint that counts how often it is asked for, then an empty folder costs none
    and two snapshots one."""
    asked: list[int] = []

    def fingerprint() -> str:
        asked.append(1)
        return "f" * 32

    snapshots = FileSnapshots(TOY, log, tmp_path, fingerprint=fingerprint)
    assert await snapshots.load() is None
    assert asked == []
    shell = await _run(log, None, 50)
    for _ in range(2):
        snapshots.write(shell.folded, shell.epoch)
    assert asked == [1]


async def test_what_is_set_aside_does_not_pile_up(log: MemoryLog, tmp_path: Path) -> None:
    """Given one damaged snapshot after another, then no more than KEPT are left lying."""
    for number in range(KEPT + 3):
        (tmp_path / f"metering-{number:020d}.snapshot").write_bytes(b"no snapshot")
        assert await _load(log, tmp_path) is None
    assert len(_names(tmp_path, "*.aside")) == KEPT
