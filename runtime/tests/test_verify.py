"""Replay and verify: the fold from zero, a snapshot with its tail, and where they part."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any

import pytest
from orca_runtime.clock import SystemClock
from orca_runtime.decider import Decider
from orca_runtime.fold import Folded, unfolded
from orca_runtime.lease import SoleLease
from orca_runtime.memory_log import MemoryLog
from orca_runtime.past import Moment, end_of, folds
from orca_runtime.recorded import Recorded
from orca_runtime.replay import newest, replay
from orca_runtime.shell import DeciderShell
from orca_runtime.snapshot import FileSnapshots
from orca_runtime.tables import state_digest
from orca_runtime.testing_toy import TOY, add
from orca_runtime.verify import SnapshotCheck, Verdict, first_difference, snapshot_check
from orca_schemas.errors import MalformedError
from orca_schemas.events.common import Noted
from pydantic import Field, TypeAdapter

EVENTS = 40


@pytest.fixture
async def log() -> MemoryLog:
    """A log whose own stream has EVENTS events, a second apart."""
    now_ms = 1_764_547_200_000
    found = MemoryLog(lambda: now_ms * 1_000_000)

    class Ticks(SystemClock):
        """A clock that the fixture moves."""

        def now_ms(self) -> int:
            return now_ms

    shell = DeciderShell(TOY, found, clock=Ticks(), lease=SoleLease())
    task = asyncio.create_task(shell.run())
    async with asyncio.timeout(5):
        for number in range(EVENTS):
            now_ms += 1000
            await found.publish(add(number))
            while shell.folded.sequence <= number:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return found


async def fold_to(decider: Decider[Any, Any], log: MemoryLog, sequence: int) -> Folded[Any]:
    """The fold from zero to a sequence."""
    folded = unfolded(decider)
    async with aclosing(folds(decider, log, folded, Moment(sequence=sequence))) as reading:
        async for folded, _, _ in reading:  # noqa: B007 - the last counts
            pass
    return folded


async def verdict(decider: Decider[Any, Any], log: MemoryLog, folder: Path) -> Verdict:
    """Verify what a folder keeps, as the command does."""
    check: SnapshotCheck[Any] = await snapshot_check(
        decider, FileSnapshots(decider, log, folder), EVENTS
    )
    folded = unfolded(decider)
    async with aclosing(folds(decider, log, folded, Moment())) as reading:
        async for folded, _, stored in reading:
            check.follow(folded, stored)
    return await check.verdict(log, folded)


async def keep(
    decider: Decider[Any, Any], log: MemoryLog, folder: Path, *sequences: int
) -> list[Path]:
    """Write snapshots at these sequences."""
    epoch = (await log.state(decider.stream)).epoch
    snapshots = FileSnapshots(decider, log, folder)
    return [snapshots.write(await fold_to(decider, log, at), epoch) for at in sequences]


def harm(path: Path) -> None:
    """Let a snapshot say something else, whole in itself."""
    head, _, state = path.read_bytes().partition(b"\n")
    changed = state.replace(b'"total":', b'"total":1')
    assert changed != state
    digest = blake2b(changed, digest_size=16).hexdigest()
    path.write_bytes(json.dumps(json.loads(head) | {"digest": digest}).encode() + b"\n" + changed)


class TestReplay:
    """Up to a moment, from zero or from a snapshot."""

    @pytest.mark.parametrize("until", ["17", "2025-12-01T00:00:17", "2025-12-01T01:00:17.9+01:00"])
    async def test_it_stops_at_a_sequence_or_at_a_time(self, log: MemoryLog, until: str) -> None:
        """Given an event a second, then the 17th is the last by its sequence and by its time."""
        found = await replay(TOY, log, unfolded(TOY), Moment.parse(until))
        assert (found.sequence, found.events) == (17, 17)
        seventeenth = await fold_to(TOY, log, 17)
        assert found.digest == state_digest(TOY.state_type, seventeenth.state)

    async def test_a_snapshot_saves_the_events_before_it(
        self, log: MemoryLog, tmp_path: Path
    ) -> None:
        """Given snapshots at 10 and 30, then up to 25 it starts at 10, else at 30, and either way
        it reaches the state of the fold from zero."""
        await keep(TOY, log, tmp_path, 10, 30)
        snapshots = FileSnapshots(TOY, log, tmp_path)
        for until, start in ((Moment(sequence=25), 10), (Moment(), 30)):
            from_snapshot = await newest(TOY, log, snapshots, until)
            assert from_snapshot is not None
            assert from_snapshot.sequence == start
            found = await replay(TOY, log, from_snapshot, until)
            fresh = await replay(TOY, log, unfolded(TOY), until)
            assert (found.digest, found.sequence) == (fresh.digest, fresh.sequence)
            assert found.events == found.sequence - start

    async def test_a_moment_that_is_not_reached_is_refused(self, log: MemoryLog) -> None:
        """Given a sequence past the end or no moment at all, then it says what to write."""
        with pytest.raises(MalformedError, match="METERING ends at 40"):
            await end_of(log, TOY.stream, Moment(sequence=41))
        with pytest.raises(MalformedError, match="write a sequence"):
            Moment.parse("yesterday")


class TestVerify:
    """Where two ways to a state part."""

    async def test_a_snapshot_and_its_tail_lead_to_the_same_state(
        self, log: MemoryLog, tmp_path: Path
    ) -> None:
        """Given a good snapshot at 30, then with the 10 events after it all is the same."""
        await keep(TOY, log, tmp_path, 10, 30)
        found = await verdict(TOY, log, tmp_path)
        assert found.same is True
        assert found.text == "30 and a tail of 10 events: the same"

    async def test_without_a_snapshot_nothing_is_compared(
        self, log: MemoryLog, tmp_path: Path
    ) -> None:
        """Given none, or one that cannot be read, then that is said and is no difference."""
        assert (await verdict(TOY, log, tmp_path)).same is None
        (path,) = await keep(TOY, log, tmp_path, 30)
        path.write_bytes(b"damaged")
        assert (await verdict(TOY, log, tmp_path)).same is None
        assert path.read_bytes() == b"damaged", "it changes nothing"

    async def test_one_that_is_wrong_itself_parted_at_or_before_it(
        self, log: MemoryLog, tmp_path: Path
    ) -> None:
        """Given a newest snapshot that says something else and an older one that is right, then
        they parted between the two."""
        _, wrong = await keep(TOY, log, tmp_path, 10, 30)
        harm(wrong)
        found = await verdict(TOY, log, tmp_path)
        assert found.same is False
        assert found.text == "parted at or before METERING#30, and after METERING#10"

    async def test_where_both_are_wrong_nothing_is_known_before(
        self, log: MemoryLog, tmp_path: Path
    ) -> None:
        """Given two snapshots that say something else, then they parted at or before the older."""
        for wrong in await keep(TOY, log, tmp_path, 10, 30):
            harm(wrong)
        found = await verdict(TOY, log, tmp_path)
        assert found.text == "parted at or before METERING#30, and after METERING#0"

    async def test_a_state_that_was_not_written_whole_parts_at_the_event_that_needed_it(
        self, log: MemoryLog, tmp_path: Path
    ) -> None:
        """Given a decider that keeps a number out of its snapshots, then the first event whose
        fold needed the number is named: the 37th, long after the snapshot."""
        await keep(FORGETFUL, log, tmp_path, 10, 20)
        found = await verdict(FORGETFUL, log, tmp_path)
        assert found.same is False
        assert found.text.startswith("parted after METERING#37 (orca.team.task.")

    @pytest.mark.parametrize("at", [1, 2, 21, EVENTS])
    async def test_the_first_difference_is_found_wherever_it_is(
        self, log: MemoryLog, at: int
    ) -> None:
        """Given two folds that part at an event, then it is found with the first as with the
        last."""
        hidden = replace(unfolded(FORGETFUL), state=Forgetful(when=at))
        other = replace(hidden, state=replace(hidden.state, hidden=1))
        assert await first_difference(FORGETFUL, log, hidden, other, EVENTS) == at


@dataclass(frozen=True, slots=True)
class Forgetful:
    """Counts, and keeps ``hidden`` out of what is written of it."""

    count: int = 0
    when: int = 37
    told: int = -1
    hidden: Annotated[int, Field(exclude=True)] = 0


def _evolve(state: Forgetful, event: Recorded) -> Forgetful:
    assert isinstance(event.data, Noted)
    state = replace(state, count=state.count + 1, hidden=state.hidden + 1)
    return replace(state, told=state.hidden) if state.count == state.when else state


FORGETFUL: Decider[Any, Any] = replace(
    TOY, initial=Forgetful(), state_type=TypeAdapter(Forgetful), evolve=_evolve
)
